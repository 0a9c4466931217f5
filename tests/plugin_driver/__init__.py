"""A driver of the kubelet's plugin protocol, as a program of its own: `python -m tests.plugin_driver --help`.

It stands in for a driver that is built on Kubernetes' Go library (k8s.io/dynamic-resource-allocation/kubeletplugin):
the same sockets, the same gRPC services, the same HTTP calls in the same encodings. It is written against the published
protocol files and shares no code with the node agent or the API server (a test looks).
"""
