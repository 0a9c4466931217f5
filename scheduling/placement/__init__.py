"""Which node a pod gets: placement policies (`policies`), the usual demands (`demands`), and the default policy
(`fragmentation`).
"""
