"""`manciple support_bundle`: what somebody who helps from afar needs to know of an installation, without its secrets.

`scrubbing` knows what is secret and takes it out of every text; `contents` says what is told; `bundle` packs it.
"""
