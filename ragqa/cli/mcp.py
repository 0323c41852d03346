"""``ragqa mcp``: serve tools for agents over standard input and output."""

import asyncio
from functools import partial

from ragqa.cli.options import PipelineOptions, add_pipeline_options
from ragqa.cli.serve import find_demo, name_indexes
from ragqa.errors import MissingExtra


@partial(add_pipeline_options, has_filters=False)
def mcp(pipeline_options: PipelineOptions) -> None:
    """Serve an index to an agent over the Model Context Protocol (standard input and output)."""
    try:
        from ragqa.serve.mcp_tools import make_mcp_server
        from ragqa.serve.work import Work
    except ImportError as error:
        raise MissingExtra("ragqa mcp", "mcp") from error
    pipeline_options.refuse_filters()
    path = pipeline_options.find_index()
    ((name, path),) = name_indexes([path or find_demo()]).items()
    work = Work({name: pipeline_options.load_pipeline(path)})
    asyncio.run(make_mcp_server(work, name).run_stdio_async())
