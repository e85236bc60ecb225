def build():
    raise ValueError("weights are missing")


model = build()
