"""Live pages: relays the event log to browsers through Channels, as topics to fetch again."""
