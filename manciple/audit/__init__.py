"""Who did what: every write, and every request that was refused or failed.

Writes are in the log with a note of who wrote them (`manciple.store.records`), by the transaction that made them. What
the log does not tell, denials and failures above all, is handed to `trail`, which writes it down in the background.
`recording` brings both into one table, in which they stay for much longer than the log; `searching` reads it.
"""
