// The model_type of a folder's config.json.
#pragma once

#include <gannet/model_config.h>

namespace gannet::exported {

// Throws unless the folder is one that gannet_export wrote, with what to do about the folders that are given in its place.
inline void require_exported(const ModelConfig& json) {
  json.require_type({"gannet_exported"},
                    json.text("model_type", "") == "gannet_torch_script"
                        ? "the folder has the weights of a TorchScript file: give that file"
                        : "export the model from Python, by python -m gannet_export MODULE:FUNCTION --example FILE --out DIR "
                          "(docs/python-models.md), and give DIR");
}

}  // namespace gannet::exported
