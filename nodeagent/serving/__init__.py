"""Serves a driver object over the kubelet's plugin protocol, as Kubernetes' kubeletplugin library does for Go drivers.

`sockets` names the two sockets and serves on one, `node` answers the kubelet's calls, `plugin` holds it together with
the health watch and the driver's ResourceSlices. `python -m nodeagent.serve` is the command.
"""
