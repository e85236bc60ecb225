"""The sum of an expensive function over many inputs, on four devices: replicated as the original program has it, and sharded."""

import os

# Four devices of the CPU, for a machine without GPUs. JAX reads it when it starts.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

DEVICES, N, M = 4, 32, 65536


def rows(start, end):
    """Some of the inputs, float32, without making the others."""
    return (np.arange(start * M, end * M) % 1000 / 1000).astype(np.float32).reshape(-1, M)


def expensive(row):
    return jnp.sum(row**2)


def total(indices, inputs):
    """The loop of the original, which is unrolled as it is traced."""
    result = 0.0
    for i in range(indices.shape[0]):
        result += expensive(inputs[indices[i]])
    return result


def report(result, compiled, *inputs):
    """The sum, and bytes on each device: held by the inputs, and of arguments, output and temporaries as the compiler counts them."""
    held = {}
    for shard in (shard for each in inputs for shard in each.addressable_shards):
        held[str(shard.device)] = held.get(str(shard.device), 0) + shard.data.nbytes
    memory = compiled.memory_analysis()
    return {
        "sum": float(jnp.sum(result)), "pid": os.getpid(), "held": held, "arguments": memory.argument_size_in_bytes,
        "output": memory.output_size_in_bytes, "temporary": memory.temp_size_in_bytes,
    }


def serial(_):
    """One device, one row after the other."""
    inputs = jax.device_put(rows(0, N), jax.devices()[0])
    compiled = jax.jit(total).lower(jnp.arange(N), inputs).compile()
    return report(compiled(jnp.arange(N), inputs), compiled, inputs)


def replicated(_):
    """pmap with in_axes=(0, None): each device gets all inputs and works on its quarter."""
    mapped = jax.pmap(total, in_axes=(0, None), devices=jax.devices()[:DEVICES])
    indices = jnp.arange(N).reshape(DEVICES, -1)
    inputs = jnp.asarray(rows(0, N))  # as the original makes them: on the first device
    everywhere = jax.device_put(inputs, NamedSharding(mesh(), PartitionSpec()))  # where pmap puts them
    copies = [shard.data for shard in everywhere.addressable_shards if shard.data.unsafe_buffer_pointer() != inputs.unsafe_buffer_pointer()]
    return report(mapped(indices, inputs), mapped.lower(indices, inputs).compile(), inputs, *copies)


def sharded(_):
    """One process over four devices: each gets its rows alone, straight from the host."""
    inputs = jax.device_put(rows(0, N), NamedSharding(mesh(), PartitionSpec("d")))
    own = jnp.arange(N // DEVICES)
    mapped = jax.jit(jax.shard_map(lambda part: total(own, part)[None], mesh=mesh(), in_specs=PartitionSpec("d"), out_specs=PartitionSpec("d")))
    return report(mapped(inputs), mapped.lower(inputs).compile(), inputs)


def shard(n):
    """A quarter, in a slot of its own: the process makes and holds nothing else."""
    share = N // DEVICES
    inputs = jax.device_put(rows(n * share, (n + 1) * share), jax.devices()[0])
    compiled = jax.jit(total).lower(jnp.arange(share), inputs).compile()
    return report(compiled(jnp.arange(share), inputs), compiled, inputs)


def mesh():
    return jax.make_mesh((DEVICES,), ("d",), devices=jax.devices()[:DEVICES])
