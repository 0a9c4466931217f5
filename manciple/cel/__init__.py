"""CEL as Kubernetes speaks it: the language, its functions and its costs. PURE.

    tree, problems = check(parse("size(object.spec) > 1"), environment)
    plan(tree)(Frame({"object": CelMap(...)}, limit=1_000_000))          # a value, or an EvaluationError as one

An expression is parsed (`parser`), typed against what its environment declares (`checker`, `functions`), priced
(`estimate`, `costs`) and made runnable (`interpreter`, `steps`). Who uses the language brings an environment: device
selectors (`scheduling.cel`), policies (`manciple.admission`). Nothing here imports Django.
"""
