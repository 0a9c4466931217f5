"""Manciple beside an existing Kubernetes cluster: reads it with the rights of a kubeconfig, and explains it.

`kubeconfig` finds the server and the credentials, `client` sends requests, `listing` reads the objects and notes what
may not be read, `copying` puts them into a store, `judgement` keeps of an explanation what the readable kinds allow to
say. `why` and `devices` are the commands; they use a store in memory, which `throwaway` makes and which ends with the
process. `manciple.processes.mirror` keeps a copy instead, in a folder of its own (`folders`), which `replicator` keeps
current; `standing` tells how current.
"""
