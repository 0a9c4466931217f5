"""The Kubernetes tongue, pure: metadata, codecs, quantities, names, selectors, patches, errors, the registry, tables.

Nothing in here imports Django, Celery or Channels, so the node agent and the allocator share it with the API server.
"""
