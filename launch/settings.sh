# shellcheck shell=bash disable=SC2034
# The one file to fill in. Another of the same form is taken with `--settings FILE`: one for each slice.
project=            # `gcloud projects list`
zone=us-west4-a     # `gcloud compute tpus accelerator-types list --zone=ZONE` shows what a zone has
name=bert           # of the slice
type=v5litepod-16   # v4-32, v5litepod-16, v5p-32 and v6e-16 have 16 chips each
capacity=spot       # spot, reserved or on-demand
queue=yes           # yes: a queued resource, which waits for its turn; no: at once or not at all
patience=24h        # how long it waits before the request lapses

runs=               # outlives the slice, seen by all hosts as ./runs: ADDRESS:/SHARE (NFS) or gs://BUCKET (gcsfuse)
corpus=             # copied or mounted on each host as ./corpus: gs://BUCKET/FOLDER, or a disk's projects/... path

folder=runs/slices/$name # here, for what the hosts print and for the result
keep=no             # yes: a slice on which something failed is left as it is, and goes on costing
restarts=3          # of processes that failed within an hour, before giving up; preemptions do not count
poll=30             # seconds between two looks
version=            # of the TPU software; empty: the one that goes with the type
flags=()            # more for the creation: --network=NETWORK --subnetwork=SUBNETWORK --service-account=ADDRESS ...
