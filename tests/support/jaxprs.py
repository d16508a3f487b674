"""What a traced function computes."""

from jax.extend.core import jaxprs_in_params


def array_sizes(jaxpr):
    """Yield the sizes of all arrays that a function makes, those of its inner functions included."""
    for equation in jaxpr.eqns:
        yield from (variable.aval.size for variable in equation.outvars if hasattr(variable.aval, "size"))
        for inner in jaxprs_in_params(equation.params):
            yield from array_sizes(inner)
