"""Serves a driver object over the kubelet's plugin protocol, as Kubernetes' kubeletplugin library does for Go drivers.

endpoints names the sockets, sockets serves on one, node answers the kubelet's calls, health its watch, slices keeps
the driver's ResourceSlices, plugin holds it together. `python -m nodeagent.serve` is the command.
"""
