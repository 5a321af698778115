"""Orbax: checkpoints saved and restored; training broken off and taken up again; Flax's own checkpoints."""

import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax.training import train_state


def _tree():
    return {
        "weights": jax.random.normal(jax.random.key(0), (4, 3)),
        "layers": [jnp.ones(2, jnp.bfloat16), jnp.arange(5)],
        "step": jnp.int32(7),
        "host": np.arange(3.0),
    }


def _abstract(tree):
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree)


def saved_and_restored():
    tree = _tree()
    with tempfile.TemporaryDirectory() as folder, ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(Path(folder) / "one", tree)
        checkpointer.wait_until_finished()
        back = checkpointer.restore(Path(folder) / "one", _abstract(tree))
        assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(back["layers"]))
        return jax.tree.map(lambda x: x.astype(jnp.float32), back), ocp.PyTreeCheckpointer().restore(
            Path(folder) / "one"
        )["step"]


def _state():
    params = {"w": jax.random.normal(jax.random.key(1), (3, 2)), "b": jnp.zeros(2)}
    return train_state.TrainState.create(apply_fn=lambda p, x: x @ p["w"] + p["b"], params=params, tx=optax.adam(1e-2))


@jax.jit
def _step(state, key):
    x = jax.random.normal(key, (8, 3))
    loss, grads = jax.value_and_grad(lambda p: ((state.apply_fn(p, x) - x[:, :2]) ** 2).mean())(state.params)
    return state.apply_gradients(grads=grads), loss


def resumed():
    """Six steps, of which the last three follow a restored checkpoint, give what six steps in one go give."""
    keys = list(jax.random.split(jax.random.key(2), 6))
    state = _state()
    with tempfile.TemporaryDirectory() as folder:
        options = ocp.CheckpointManagerOptions(max_to_keep=2, save_interval_steps=1)
        with ocp.CheckpointManager(folder, options=options) as manager:
            for n in range(3):
                state, _ = _step(state, keys[n])
                manager.save(n, args=ocp.args.StandardSave(state))
            manager.wait_until_finished()
            assert manager.all_steps() == [1, 2]
            state = manager.restore(manager.latest_step(), args=ocp.args.StandardRestore(_state()))
    for key in keys[3:]:
        state, loss = _step(state, key)
    whole = _state()
    for key in keys:
        whole, _ = _step(whole, key)
    np.testing.assert_array_equal(whole.params["w"], state.params["w"])
    return state.params, loss, state.step


def parts():
    tree = _tree()
    with (
        tempfile.TemporaryDirectory() as folder,
        ocp.CheckpointManager(folder, item_names=("state", "extra")) as manager,
    ):
        args = ocp.args.Composite(state=ocp.args.PyTreeSave(tree), extra=ocp.args.JsonSave({"epoch": 3}))
        manager.save(0, args=args)
        manager.wait_until_finished()
        back = manager.restore(0, args=ocp.args.Composite(state=ocp.args.PyTreeRestore(), extra=ocp.args.JsonRestore()))
        assert back["extra"] == {"epoch": 3}
        return back["state"]["weights"], back["state"]["layers"][1]
