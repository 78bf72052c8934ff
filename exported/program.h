// A graph that is ready to run: its operators are resolved, its constants created, and the last use
// of each value is known.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "graph.h"
#include "python_operators.h"
#include "writes.h"

namespace gannet::exported {

// The kind of argument that an operator expects.
enum class Form {
  kAny,  // passed as it is
  kTensor,
  kScalar,
  kInt,
  kFloat,
  kBool,
  kString,
  kDevice,
  kTensors,
  kMaybeTensors,
  kScalars,
  kInts,
  kFloats,
  kBools
};

struct Operand {
  enum class Kind { kConstant, kValue, kList, kDevice };
  Kind kind = Kind::kConstant;
  Form form = Form::kAny;
  size_t slot = 0;            // kValue
  c10::IValue constant;       // kConstant
  std::vector<Operand> list;  // kList
};

struct Step {
  enum class Kind { kOperator, kPython, kGetItem, kGradMode, kAutocast, kCond };
  Kind kind = Kind::kOperator;
  const Node* node = nullptr;  // for messages
  std::optional<c10::OperatorHandle> op;
  PythonOperator python = nullptr;
  std::vector<Operand> operands;  // in the order of the schema
  size_t routines[2] = {};        // of nested graphs
  size_t first_result = 0, results = 1;
  std::vector<size_t> ends;  // slots that nothing uses after this step
};

// A compiled graph. A slot holds one value of a call; slots [0, inputs) are the graph's inputs.
struct Routine {
  size_t inputs = 0, slots = 0;
  std::vector<Step> steps;
  std::vector<Operand> outputs;
  Writes writes;  // into its inputs
};

// Fills `ends` of the steps: a value is released after the step that uses it last, or at once if it
// is unused. Outputs are kept until the call ends.
void find_ends(Routine& routine);

// Immutable after construction, except for cached copies of constants on devices; threads may share
// it.
class Program {
 public:
  // `constants`: the tensors of constants.safetensors. Throws Error(kUnsupported) for operators
  // that are unknown to this LibTorch or not allowed, and Error(kCorrupt) for arguments that do not
  // fit their operator.
  Program(GraphFile file, const std::map<std::string, at::Tensor>& constants);
  Program(const Program&) = delete;

  const GraphFile& file() const { return file_; }
  // "train.fp32"
  std::string name() const { return file_.mode + "." + file_.dtype; }
  const std::vector<Routine>& routines() const { return routines_; }  // the last one is the outermost
  // The constants on the device, in the order of their placeholders.
  const std::vector<at::Tensor>& constants_on(c10::Device device) const;

 private:
  GraphFile file_;
  std::vector<Routine> routines_;
  std::vector<at::Tensor> constants_;  // on the CPU
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::vector<at::Tensor>> on_devices_;  // by the device's name; entries are never erased
};

}  // namespace gannet::exported
