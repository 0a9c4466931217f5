"""The guard: a validating webhook on `resourceclaims/status` that lets no device of the cluster be given twice.

Kubernetes' versions protect a claim, but nothing protects a device: two writers that allocate it to two claims at the
same time both succeed. The API server asks the guard before it stores an allocation:

 1. `reviews` reads the AdmissionReview. A write that allocates nothing new passes at once.
 2. `judging` compares the allocation with what others hold (`scheduling.allocator.ledger`): in the copy of the cluster,
    and by the promises that the copy may not show yet.
 3. Nothing overlaps: it is promised (`promises`) and admitted. One transaction that holds the database's lock of the
    guard did both, so of two racing writers one is admitted, whichever replica they ask.
 4. Something overlaps: the cluster itself is asked for the claims in the way. What it no longer says is forgotten, and
    the write judged again; so a late copy refuses nothing. Only what the cluster confirms is refused, or, by a guard
    that watches (`audit`), let through and reported.

A promise is of one allocation to one claim. It ends when the copy shows the write, when the cluster shows that it never
arrived, or after `judging.PROMISED` seconds without a trace of it.

Nothing is concluded from what is not known: where claims or slices may not be read, where nobody confirms an overlap,
or where the copy is late and shows none, the write is admitted with a warning that says so.

`listener` serves it over HTTPS; `keeping` forgets promises, and opens and closes incidents.
"""
