"""Who asks: the kinds of credentials, each in a module of its own, and the chain that tries them."""
