"""`manciple doctor`: looks for what operators get wrong and what they do not see, and says what to do about each.

`diagnoses` is what is told; `machine`, `database`, `redis`, `versions`, `backups` and `cluster` examine a part each,
and change nothing; `checkups` lists them.
"""
