"""All statements of the theory, in the order of their numbers.

>>> from multihead.statements.catalogue import STATEMENTS
>>> [statement.id for statement in STATEMENTS][:7]
['1', '2', '3', '4', '5', '6a', '6b']
"""

from multihead.statements.any_pattern import any_pattern
from multihead.statements.attention_flops import attention_flops
from multihead.statements.attention_memory import attention_memory
from multihead.statements.chain_rule import chain_rule
from multihead.statements.cosine_diversity import cosine_diversity
from multihead.statements.direct_sum import direct_sum
from multihead.statements.equals_one_head import equals_one_head
from multihead.statements.gradient_decay import gradient_decay
from multihead.statements.head_dimension import head_dimension
from multihead.statements.hessian_at_minimum import hessian_at_minimum
from multihead.statements.information_of_heads import (
    at_least_the_best_head,
    capacities_add_up,
    information_splits,
)
from multihead.statements.joint_coverage import joint_coverage
from multihead.statements.mean_output_importance import mean_output_importance
from multihead.statements.not_stacked_layers import not_stacked_layers
from multihead.statements.orthogonal_spaces import orthogonal_spaces
from multihead.statements.output_norm import output_norm
from multihead.statements.quadratic_in_length import quadratic_in_length
from multihead.statements.redundancy_ratio import redundancy_ratio
from multihead.statements.same_cost_as_one_head import same_cost_as_one_head
from multihead.statements.sgd_step import sgd_step
from multihead.statements.statement import Statement
from multihead.statements.uncorrelated_heads import uncorrelated_heads
from multihead.statements.variance_bound import variance_bound

STATEMENTS: tuple[Statement, ...] = (
    orthogonal_spaces,
    direct_sum,
    cosine_diversity,
    joint_coverage,
    uncorrelated_heads,
    at_least_the_best_head,
    capacities_add_up,
    information_splits,
    output_norm,
    chain_rule,
    sgd_step,
    attention_flops,
    attention_memory,
    hessian_at_minimum,
    gradient_decay,
    mean_output_importance,
    redundancy_ratio,
    variance_bound,
    any_pattern,
    equals_one_head,
    quadratic_in_length,
    not_stacked_layers,
    head_dimension,
    same_cost_as_one_head,
)
