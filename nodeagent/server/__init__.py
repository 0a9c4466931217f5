"""What the agent itself serves over HTTPS: its health, its metrics, and the logs of its containers.

The API server fetches logs here, as it does from a kubelet: it finds address and port in the Node's status and the
SHA-256 of the certificate in an annotation, and shows a token that the agent lets the API server review.
"""
