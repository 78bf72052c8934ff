"""The planted defects of tests/kit/bad and the check of the kit that names each.

DEFECTS: {file: {plugin: check}} of plugins on which all checks are run. ONE_CHECK: the same, of plugins on which that check alone is.
"""

# The check that must fail; None: all pass.
DEFECTS = {
    "results": {
        "sound": None, "averaged": None, "position": "halves-equal-whole", "tail": "halves-equal-whole", "unrepeatable": "repeatable",
        "diverges": "repeatable", "owncount": "resumes", "groupcount": "lagging-steps", "fixedrate": "schedule",
        "truncates": "copy-out", "rangenorm": "any-cut", "rankstate": "ranks-agree", "shared": "two-at-once",
        "nanaborts": "nonfinite-gradients", "exits": "repeatable", "hangs": "repeatable",
    },
    "later": {
        "drawn": None, "unseeded": "random-numbers", "byplace": "halves-equal-whole", "sequence": "resumes",
        "stalework": "repeatable", "widework": "bounds", "widesquare": "bounds",
        "perturbing": None, "ownnorm": "perturbation", "movesparameter": "perturbation", "halfmoved": "perturbation",
        "widemove": "perturbation", "second": None, "heedless": "second-gradient", "counting": "second-gradient",
        "writessecond": "gradients-untouched", "twopasses": None,
    },
    "lists": {
        "listed": None, "dropslast": "lists", "firststep": "lists", "firstwork": "lists", "byorder": "lists", "onesum": "lists",
        "ondevice": None, "neverskips": "device-numbers", "skipshalf": "device-numbers", "remembers": "device-numbers",
        "readscall": "device-numbers", "writesnumbers": "inputs-untouched",
    },
    "manners": {
        "writesgrad": "gradients-untouched", "writeshyper": "inputs-untouched", "overruns": "bounds", "underruns": "bounds",
        "latestate": "own-states-untouched", "busysums": "sums-write-nothing", "keepspointer": "no-kept-pointers",
        "deaftofailure": "host-failures", "silentfailure": "host-failures", "silentrefusal": "supports",
        "overclaims": "supports", "leaks": "leaves-nothing", "leaksinupdate": "leaves-nothing-in-steps",
        "prints": "process-untouched", "startsthread": "process-untouched", "startsprocess": "process-untouched",
        "limitcrashes": "params", "limitsilent": "params", "fickle": "description",
    },
    "reductions": {
        "averages": None, "keepslocal": "own-reduction", "forgetserror": "own-reduction-resumes", "fickleplan": "reduction-plan",
        "localsteps": None, "driftsapart": "own-reduction", "givesitsown": "own-reduction", "localthenhost": "reduction-plan",
    },
    "schedules": {
        "flat": None, "counts": "pure", "overflows": "finite", "negative": "finite", "undeclared": "roles",
        "neverwrites": "roles", "needsbase": "base", "knownonly": "total-steps", "lengthonce": "total-steps",
        "querysizeexact": "other-hosts", "querysizeignored": "other-hosts", "querygroupwritten": "other-hosts",
        "querybasebeyond": "other-hosts", "querybasewritten": "other-hosts", "querybaseonce": "base", "querysteponce": "pure",
        "climbing": None, "ownstate": "keeps-its-state", "stateonce": "keeps-its-state", "statebeyond": "process-untouched",
        "statewritten": "other-hosts", "advancestepown": "keeps-its-state", "advancewritten": "other-hosts",
        "statenan": "keeps-its-state", "manyroles": "other-hosts", "ownvalues": "other-hosts",
        "advancelengthonce": "total-steps", "fickleroles": "description", "rolewithoutvalue": "roles",
        "flagunknown": "pure",
    },
}
# All checks of these, on all worlds or of many plugins, would take minutes.
ONE_CHECK = {
    "authors": {
        "cachedscale": "gradient-scale", "noscale": "gradient-scale", "threads": "threads", "bychunk": "threads",
        "partial": "refused-memory", "unchecked": "refused-memory", "halfup": "copy-out", "idseed": "labels", "big16": "any-cut",
        "big17": "lengths", "lanes": "lengths", "orderrun": "any-cut", "padding": "any-cut", "perrank": "any-cut",
        "setssums": "partial-sums", "resumebias": "resumes", "rounding": "process-untouched",
        "flushesdenormals": "process-untouched", "uninit": "repeatable", "namecache": "resumes",
        "printslater": "process-untouched", "leavesthread": "process-untouched", "locale": "process-untouched",
        "folder": "process-untouched", "signal": "process-untouched", "mask": "process-untouched", "umask": "process-untouched",
        "variable": "process-untouched", "opensfile": "process-untouched", "closesfile": "process-untouched",
        "heapoverrun": "repeatable", "scratchoverrun": "process-untouched", "freesit": "process-untouched",
        "nocontext": "process-untouched", "nolevel": "process-untouched", "nogroup": "process-untouched", "byrank": "any-cut",
        "byworld": "any-cut", "step32": "far-steps", "stricthost": "other-hosts", "nanstate": "description",
        "twonames": "description", "crashingsupports": "supports",
    },
    "fastmath": {"fastmath": "process-untouched"},
    "losses": {
        "lossunclaimed": "repeatable", "lossonce": "loss", "lossignored": "loss", "lossofall": "loss",
        "losswritten": "inputs-untouched", "lengthonce": "total-steps", "lengthdivides": "total-steps", "factorwidth": "bounds",
        "factorinsums": "sums-write-nothing", "metricinupdate": "metrics", "metricunnamed": "metrics",
        "metriccounted": "metrics", "metricnan": "metrics", "metricunheeded": "metrics", "metricunasked": "other-hosts",
    },
    "descriptions": {
        "contextkept": "labels", "contextgroupused": "labels", "contextrankused": "any-cut", "contextworldused": "any-cut",
        "contextcountused": "labels", "contextstrideignored": "other-hosts", "contextwritten": "inputs-untouched",
        "descriptionbyrank": "any-cut", "statenameless": "description", "stateextentunknown": "description",
        "statetypeunknown": "description", "stateflagunknown": "description", "stateblockalone": "description",
        "statelimitalone": "description", "sumscopeunknown": "description", "sumoperationunknown": "description",
        "sumroundsbackwards": "description", "sumpassunclaimed": "description", "alignmentodd": "description",
        "workspaceunclaimed": "description", "capabilityunknown": "description",
        "stateblockmissing": "description",
    },
    "fields": {
        "longsentence": "sentences", "readsnewer": "other-hosts", "writesnewer": "other-hosts", "updatesizeexact": "other-hosts",
        "updateparamtypeignored": "types", "updateparamtypewritten": "inputs-untouched", "updategradtypeignored": "types",
        "updateouttypeignored": "copy-out", "updatenumelwritten": "inputs-untouched", "updateparamonce": "no-kept-pointers",
        "updategradonce": "no-kept-pointers", "updategradwritten": "gradients-untouched", "updateoutignored": "copy-out",
        "updateoutonce": "types", "updatestatesonce": "inputs-untouched", "updatestateswritten": "inputs-untouched",
        "updatescaleignored": "gradient-scale", "updatescaleonce": "gradient-scale", "updatescalesquared": "gradient-scale",
        "updatescalewritten": "inputs-untouched", "updatesteponce": "resumes", "updatestepwritten": "inputs-untouched",
        "updatehyperonce": "hyperparameters", "updatehyperkept": "inputs-untouched", "updatehyperbeyond": "inputs-untouched",
        "updatehyperwritten": "inputs-untouched", "updatehypercountwritten": "inputs-untouched", "updatesegmentsonce": "inputs-untouched",
        "updatesegmentswritten": "inputs-untouched", "updatesegmentcountshort": "any-cut", "updatestrideignored": "other-hosts",
        "updatesumsonce": "inputs-untouched", "updatesumsfirstrow": "any-cut", "updatesumswritten": "inputs-untouched",
        "updategroupused": "labels", "updatelinesonce": "inputs-untouched", "updatelineswritten": "inputs-untouched",
        "updateseedignored": "random-numbers", "updateseedonce": "resumes", "updateworkspaceonce": "no-kept-pointers",
        "updateworkspacebeyond": "bounds", "updateworkspaceread": "repeatable", "sumsscaleignored": "gradient-scale",
        "sumsroundignored": "any-cut", "sumslinesset": "any-cut", "sumsstrideignored": "other-hosts",
        "sumsparamwritten": "sums-write-nothing", "sumsgroupused": "labels", "beginsizeexact": "other-hosts",
        "beginsteponce": "resumes", "beginstepwritten": "inputs-untouched", "beginhyperonce": "hyperparameters",
        "beginhyperwritten": "inputs-untouched", "begingroupused": "labels", "beginseedonce": "resumes",
        "beginstatesonce": "inputs-untouched", "beginstateswritten": "inputs-untouched", "beginworkspacebeyond": "bounds",
        "endtensorsonce": "inputs-untouched", "endtensorcountshort": "neighbours", "endtensorstrideignored": "other-hosts",
        "endsumsonce": "inputs-untouched", "endsumswritten": "inputs-untouched", "endsumsfirstrow": "neighbours",
        "endhyperonce": "hyperparameters", "endlinesonce": "inputs-untouched", "endscaleused": "gradient-scale",
        "endscaleonce": "gradient-scale", "segmentindexinpiece": "any-cut", "segmentidused": "labels",
        "segmentoffsetignored": "any-cut", "segmentoffsetintensorignored": "any-cut", "segmentnumelshort": "any-cut",
        "segmenttensornumelofpart": "any-cut", "segmentnameonce": "labels", "segmentshapeonce": "labels",
        "segmentshapebeyond": "labels", "segmentcolumnsofpart": "any-cut", "segmentfirstrowignored": "neighbours",
        "segmentfirstcolumnignored": "neighbours", "segmentmatrixrowsignored": "any-cut", "segmentseedignored": "random-numbers",
        "segmentseedbyindex": "neighbours", "tensorindexreversed": "neighbours", "tensorfirstrowignored": "neighbours",
        "tensorfirstcolumnignored": "neighbours", "tensoridused": "labels",
    },
    "comms": {
        "dropslast": "reduces", "overruns": "moves", "reducesinsend": "reduces", "silentrefusal": "moves",
        "evenparts": "uneven-parts", "serial": "batches", "reorders": "messages", "onegroup": "groups",
        "eagerquery": "completion", "timeoutends": "time-out", "hangsondeath": "lost-peer", "deaftoabort": "abort",
        "liesofsums": "sum-dtype", "countstwice": "counters", "leaksworks": "leaves-nothing-in-use", "leaksgroups": "leaves-no-group", "sizeexact": "newer-host",
    },
    "tiers": {
        "oddalignment": "alignment", "shortwrites": "reads-back", "dirty": "zeros", "byname": "regions-apart",
        "oneatatime": "in-flight", "pathnames": "names", "copiedaddress": "address", "sharedplaces": "two-at-once",
        "latecopies": "release-in-flight", "leavesfiles": "leaves-nothing-in-use", "deaftodrive": "no-room",
        "clamps": "refusals",
    },
    "devices": {
        "morethanall": "devices", "earlyevents": "events", "wholewords": "copies", "hasty": "synchronize",
        "deserts": "queue-end", "pinsonce": "pinning", "unbounded": "bad-device",
    },
}

CHECK_OF = {plugin: check for files in (DEFECTS, ONE_CHECK) for defects in files.values() for plugin, check in defects.items()}
