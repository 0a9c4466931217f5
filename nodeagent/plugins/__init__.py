"""The kubelet's side of the DRA plugin protocol: drivers in processes of their own, met over Unix sockets.

sockets finds the registration sockets, registration asks one who is there, registrar does so for all of them and
again when they change; driver is what the agent calls, over one or more instances; health follows what they report;
host holds it together and is what the agent sees. Only `channels` imports grpc, and the agent imports this package only
where drivers behind sockets are sought: it costs 11 MB.
"""
