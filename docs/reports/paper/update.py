"""Record outcomes of claims and rewrite the tables: python docs/reports/paper/update.py FOLDER.

FOLDER is that of `bisimetric reproduce claims -o FOLDER`, such as docs/reports/paper/runs, where
the trained runs of the report are; without it only the claims about Atari and the tables are
updated, from the records in docs/reports/atari. Writes src/bisimetric/paper/claims.json,
docs/reports/paper.md, and the figures stability.png and stability-noise.png.
"""

import json
import sys
from pathlib import Path

from bisimetric import views
from bisimetric.paper import claims, learning_claims, stability
from bisimetric_atari.paper import claim_outcomes

REPORTS = Path(__file__).parents[1]

record = json.loads(claims.RECORD_FILE.read_text(encoding="utf-8"))
metadata, outcomes = record["metadata"], claims.load_record()
if len(sys.argv) > 1:
    folder = Path(sys.argv[1])
    measured = json.loads((folder / "claims.json").read_text(encoding="utf-8"))
    metadata = measured["metadata"]
    outcomes |= claims.load_record(folder / "claims.json")
    runs = learning_claims.run(folder)
    for part, curves in (("stability", runs.variants), ("stability-noise", runs.noisy)):
        shown = {name: curves[name] for name in stability.ABLATION if name in curves}
        views.save_figure(stability.plot_curves(shown), REPORTS / "paper" / f"{part}.png")
outcomes |= claim_outcomes.summarise(REPORTS / "atari")
claims.save_record(claims.RECORD_FILE, outcomes, metadata)
page = REPORTS / "paper.md"
page.write_text(claims.render_page(page.read_text(encoding="utf-8"), outcomes), encoding="utf-8")
print(f"{len(outcomes)} outcomes")
