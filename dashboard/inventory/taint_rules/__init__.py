"""The rules that taint devices: listed, made, changed and taken away, each with who is affected."""
