"""The pages of the claims app."""

from django.urls import path

from claims.pages import devices

urlpatterns = [
    path("devices", devices.show_devices, name="devices"),
    path("devices/lines", devices.show_lines, name="device-lines"),
    path("devices/panel", devices.show_panel, name="device-panel"),
]
