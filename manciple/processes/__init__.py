"""How processes are put together: `manage.py up` (everything in one) and `manage.py serve` (an API process).

The composition root: the only place that may import every part, the node agent included. It adds no behaviour of its
own to them.
"""
