"""The node agent: what the kubelet is to Kubernetes, for the parts that devices touch.

It talks HTTP to the API server like any client, prepares the claims of the pods bound to its node through device
drivers, writes CDI files, starts containers through a runtime and reports status. No Django in here.
"""
