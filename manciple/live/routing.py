"""Where browsers connect."""

from django.urls import path

from manciple.live.consumers import LiveConsumer

websocket_urlpatterns = [path("live", LiveConsumer.as_asgi())]  # type: ignore[arg-type]  # Channels routes by Django's path()
