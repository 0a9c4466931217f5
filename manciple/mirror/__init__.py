"""Manciple beside an existing Kubernetes cluster: reads it with the rights of a kubeconfig, and explains it.

`kubeconfig` finds the server and the credentials, `client` sends requests, `sources` names the resources. Two ways lead
on:

    once, for a command     `listing` reads everything, `copying` puts it into a store in memory, which `throwaway`
                            makes and which ends with the process. `why` and `devices` are the commands.
    for good, for a mirror  `replicator` lets `following` list and watch each resource, and `stored_copy` write what
                            happened into the store; `standing` tells everybody else how far the cluster is known.
                            `manciple.processes.mirror` runs it, in a folder of its own (`folders`).

Both keep objects as `received` reads them; `judgement` says what is not known
(`manciple.gaps`).
"""
