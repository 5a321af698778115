"""What libraries that walk graphs ask of an equation's source."""

import fuser
import fuser.numpy as fnp


def test_name_stacks_are_the_scopes_without_the_transforms() -> None:
    @fuser.named_scope("encoder")
    def encoder(x):
        with fuser.named_scope("attention"):
            return fnp.exp(x)

    def program(x):
        return fnp.log(encoder(x)).sum()

    graph = fuser.make_jaxpr(fuser.grad(program))(fnp.ones(3))
    stacks = {eqn.primitive.name: str(eqn.source_info.name_stack) for eqn in graph.eqns}
    assert stacks["exp"] == "encoder/attention"
    mapped = fuser.make_jaxpr(fuser.vmap(program))(fnp.ones((2, 3)))
    stacks = {eqn.primitive.name: str(eqn.source_info.name_stack) for eqn in mapped.eqns}
    assert stacks == {"exp": "encoder/attention", "log": "", "reduce_sum": ""}
