"""The whole graph of a config in TFX's intermediate representation.

The graph is compiled twice: where the pipeline is compiled, which gives the nodes and their order,
and in the first step of each run, which gives the values of the nodes. The second time cannot be
left out: absolute paths and whether files match them, the revision of the kept schema, the code
that a config names, the spans and the run's parameters are known only in a pod, and which nodes
they change is known only to `create_pipeline`. It takes 0.02 s, while importing TFX, which the
first step needs to read spans and metadata as well, takes several seconds.
"""

from __future__ import annotations

from tfx.dsl.compiler import compiler
from tfx.orchestration import pipeline as pipeline_module
from tfx.proto.orchestration import pipeline_pb2

from pipeline.config.sections.data import NO_SPAN, has_spans
from pipeline.graph.create import create_pipeline
from pipeline.graph.data import Spans
from pipeline.run_context import RunContext


def compile_graph(context: RunContext, spans: Spans | None = None) -> pipeline_pb2.Pipeline:
    """The whole pipeline of a config in TFX's intermediate representation.

    Args:
      context: the config, and the layout of the pipeline on the cluster.
      spans: what to read and train on. Where the data comes in spans, the default is placeholders
        for spans that are not known yet.
    """
    if has_spans(context.config.data):
        known = spans or Spans(newest=0, window=(0,))
        # With a number in place of None the first run, which is compared with nothing, has the same
        # nodes as later ones.
        older = NO_SPAN if known.compared_with is None else known.compared_with
        spans = Spans(known.newest, known.window, older)
    created: pipeline_module.Pipeline = create_pipeline(context, spans)
    # It holds the password of the metadata.
    created.metadata_connection_config = None
    return compiler.Compiler().compile(created)
