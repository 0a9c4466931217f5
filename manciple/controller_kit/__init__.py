"""What the author of a driver needs for its controller (KEP-3063): the half of a driver that allocates.

    driver      what the author writes: parameters, allocate, deallocate, which nodes do not suit
    forms       claims as `resource.k8s.io/v1alpha2` and v1alpha3 have them, as one to everything else
    cache       what is known of the API's objects, by watches and by the answers to writes
    claims      what is to be done about one claim; contexts: about one pod's PodSchedulingContext
    controller  holds it together: watches, queue, workers
    leader      one of several controllers works at a time
    metrics, command

PURE: no Django. Its client of the API is the node agent's, `nodeagent.api.client`. The other half of a driver runs on
the nodes: `nodeagent.drivers.authoring.HandleDriver`. Source: k8s.io/dynamic-resource-allocation/controller of
Kubernetes 1.30 and 1.31, from which nothing is copied.
"""
