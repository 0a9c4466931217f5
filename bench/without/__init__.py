"""A system without some of its guards, to measure what they cost: `bench/end_to_end.py --case clients --without ...`.

Not of the product, which has no such switch: `settings` adds this app to the installed ones, and MANCIPLE_BENCH_WITHOUT
names what it takes out of the process once everything is registered.
"""
