# shellcheck shell=bash disable=SC2034
# Fill in this file. `--settings FILE` reads another file of this form, for a second slice.
project=            # `gcloud projects list`
zone=us-west4-a     # `gcloud compute tpus accelerator-types list --zone=ZONE` shows what a zone offers
name=bert           # the name of the slice
type=v5litepod-16   # v4-32, v5litepod-16, v5p-32 and v6e-16 have 16 chips each
capacity=spot       # spot, reserved or on-demand
reservation=        # of capacity=reserved, its name; empty: any that the project has
queue=yes           # yes: a queued resource, which waits for capacity; no: fail if there is no capacity now
patience=24h        # how long a queued request waits before it expires

runs=               # storage that outlives the slice, ./runs on all hosts: ADDRESS:/SHARE (NFS) or gs://BUCKET (gcsfuse)
corpus=             # copied or mounted on each host as ./corpus: gs://BUCKET/FOLDER, or a disk's projects/... path

folder=runs/slices/$name # on this machine, for the output of the hosts and the result
keep=               # yes: keep the slice at the end and after a failure; no: delete it; empty: keep it only if it is reserved
price=1.2           # dollars per chip-hour, with which first_hour.sh computes what it costs
restarts=3          # restarts before giving up, counting failures within an hour of the last start, but not preemptions
poll=30             # seconds between two checks
libtpu=             # flags of the TPU compiler (LIBTPU_INIT_ARGS), such as those in launch/README.md, "Gradients and links"
version=            # the version of the TPU software; empty: the default for the type
flags=()            # more flags for creating the slice: --network=NETWORK --subnetwork=SUBNETWORK --service-account=ADDRESS ...
