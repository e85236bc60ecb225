"""As much of jaxlib as the runtime's limit on JAX uses."""
