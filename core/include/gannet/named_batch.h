/// A batch, or a sample, whose tensors have names: those of a model's inputs. gannet::to_device
/// moves one to a device.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

namespace gannet {

using NamedBatch = std::map<std::string, at::Tensor>;

/// Stacks samples along a new first dimension, name by name; a Collate<NamedBatch>. Throws
/// Error(kArgument), which names the tensor and the shapes, if the samples differ.
NamedBatch stack_named(const std::vector<NamedBatch>& samples);

}  // namespace gannet
