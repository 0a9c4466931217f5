"""Custom resources: kinds that are defined by objects of the kind CustomResourceDefinition, while the server runs."""
