"""Where browsers connect."""

from django.urls import path, re_path

from manciple.live.consumers import ClosedDoor, LiveConsumer

websocket_urlpatterns = [
    path("live", LiveConsumer.as_asgi()),  # type: ignore[arg-type]  # Channels routes by Django's path()
    re_path("", ClosedDoor.as_asgi()),  # type: ignore[arg-type]
]
