"""The pages of the claims app."""

from django.urls import path

from claims.pages import device, devices

urlpatterns = [
    path("devices", devices.show_devices, name="devices"),
    path("devices/lines", devices.show_lines, name="device-lines"),
    path("devices/matches", devices.show_matches, name="device-matches"),
    path("devices/panel", device.show_panel, name="device-panel"),
    path("devices/d/<str:driver>/<path:pool>/<str:device>", device.show_device, name="device"),
]
