"""`manciple driver check`: runs a driver of the kubelet's plugin protocol through what a kubelet may ask of it.

No Kubernetes is needed: `api` is an API server with one Node, where the driver publishes its devices and reads the
claims that the check makes for them; `subject` is the driver as the check meets it; `registration`, `preparing`,
`health` and `restarting` are the checks, each of which a broken driver fails (tests/nodeagent/driver_check); `report`
is what is said of them, `command` the command line.
"""
