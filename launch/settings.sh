# shellcheck shell=bash disable=SC2034
# The file to fill in. `--settings FILE` reads another one of this form, for a second slice.
project=            # `gcloud projects list`
zone=us-west4-a     # `gcloud compute tpus accelerator-types list --zone=ZONE` shows what a zone has
name=bert           # of the slice
type=v5litepod-16   # v4-32, v5litepod-16, v5p-32 and v6e-16 have 16 chips each
capacity=spot       # spot, reserved or on-demand
queue=yes           # yes: a queued resource, which waits for capacity; no: at once or not at all
patience=24h        # how long it waits before the request expires

runs=               # outlives the slice, ./runs on all hosts: ADDRESS:/SHARE (NFS) or gs://BUCKET (gcsfuse)
corpus=             # copied or mounted on each host as ./corpus: gs://BUCKET/FOLDER, or a disk's projects/... path

folder=runs/slices/$name # here, for the output of the hosts and the result
keep=no             # yes: after a failure the slice is kept, and goes on costing
restarts=3          # after failures within an hour, before giving up; preemptions do not count
poll=30             # seconds between two looks
libtpu=             # flags of the TPU compiler (LIBTPU_INIT_ARGS), such as those of launch/README.md, "Gradients and links"
version=            # of the TPU software; empty: the default of the type
flags=()            # further flags of the creation: --network=NETWORK --subnetwork=SUBNETWORK --service-account=ADDRESS ...
