"""The kubelet's side of the DRA plugin protocol: drivers in processes of their own, met over Unix sockets.

`registration` finds the sockets and asks who is there, again when they change; `driver` is what the agent calls, over
one or more instances, and follows what they report of health; `host` holds it together and is what the agent sees.
`protocol` has the messages and imports grpc, and the agent imports this package only where drivers behind sockets are
sought: it costs 11 MB.
"""
