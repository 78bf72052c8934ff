#include <ATen/core/grad_mode.h>
#include <gannet/error.h>
#include <gannet/torch_script.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <unordered_map>
#include <utility>

#include "module_tree.h"

namespace gannet {
namespace {

// "Unknown builtin op: mylib::op." of a message with a stack of C++ functions, or of Python lines, around it.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// The interpreter writes the lines of the Python source, and last what went wrong.
std::string reason_of(const std::exception& error) {
  const auto* const torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text = torch_error ? torch_error->what_without_backtrace() : error.what();
  constexpr const char* kMark = "RuntimeError: ";
  const size_t mark = text.rfind(kMark);
  return first_line(mark == std::string::npos ? text : text.substr(mark + std::char_traits<char>::length(kMark)));
}

torch::jit::Module loaded(const std::string& path) {
  std::error_code code;
  if (!std::filesystem::exists(path, code)) throw Error(ErrorCode::kNotFound, "there is no " + path, "check the path");
  try {
    return torch::jit::load(path, c10::Device(at::kCPU));
  } catch (const std::exception& error) {
    const std::string text = error.what();
    const size_t at = text.find("Unknown builtin op: ");
    if (at != std::string::npos)
      throw Error(ErrorCode::kUnsupported, path + ": " + first_line(text.substr(at)),
                  "it is an operator of another library, which must be linked into this program or loaded before the file is");
    throw Error(
        ErrorCode::kCorrupt, path + ": it is not a TorchScript file, or a damaged one: " + reason_of(error),
        "write it by torch.jit.save(torch.jit.script(model), path); torch.save of a model or of a state dict writes another "
        "kind of file");
  }
}

// Whether both are the same elements of one storage: the file keeps tied tensors as two of them.
bool is_same_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.storage().unsafeGetStorageImpl() == b.storage().unsafeGetStorageImpl() && a.numel() > 0 &&
         a.storage_offset() == b.storage_offset() && a.sizes() == b.sizes() && a.strides() == b.strides() &&
         a.scalar_type() == b.scalar_type();
}

// The loss in what forward returned; undefined if it has none.
at::Tensor loss_in(const c10::IValue& result) {
  if (result.isTensor()) return result.toTensor();
  if (result.isTuple()) {
    const auto tuple = result.toTuple();
    const auto& elements = tuple->elements();
    size_t at = 0;
    if (const auto schema = tuple->type()->schema())  // a NamedTuple
      for (size_t i = 0; i < schema->arguments().size(); ++i)
        if (schema->arguments()[i].name() == "loss") at = i;
    return at < elements.size() && elements[at].isTensor() ? elements[at].toTensor() : at::Tensor();
  }
  if (result.isGenericDict()) {
    const auto dict = result.toGenericDict();
    const auto found = dict.find("loss");
    return found != dict.end() && found->value().isTensor() ? found->value().toTensor() : at::Tensor();
  }
  if (result.isList()) {
    const auto list = result.toListRef();
    return !list.empty() && list[0].isTensor() ? list[0].toTensor() : at::Tensor();
  }
  return {};
}

size_t operators_in(torch::jit::Block& block) {
  size_t count = 0;
  for (torch::jit::Node* const node : block.nodes()) {
    count += node->kind().is_aten() ? 1 : 0;
    for (torch::jit::Block* const inner : node->blocks()) count += operators_in(*inner);
  }
  return count;
}

// Checkpoints have parameters and buffers: another attribute that forward assigns would be lost on resume.
void refuse_assigned_attributes(torch::jit::Block& block, const std::string& path) {
  for (torch::jit::Node* const node : block.nodes()) {
    for (torch::jit::Block* const inner : node->blocks()) refuse_assigned_attributes(*inner, path);
    if (node->kind() != c10::prim::SetAttr) continue;
    const c10::TypePtr type = node->inputs()[1]->type();
    if (type->isSubtypeOf(*c10::TensorType::get())) continue;
    const std::string name = node->s(c10::attr::name);
    throw Error(ErrorCode::kUnsupported,
                path + ": forward assigns the attribute '" + name + "', of type " + type->repr_str() +
                    ", and checkpoints have only the parameters and buffers",
                "make it a buffer: self.register_buffer('" + name + "', torch.tensor(...))");
  }
}

}  // namespace

// A call gets buffers as aliases of the registered ones. Writes into an alias are writes into the buffer; code that assigns
// another tensor to the attribute gives it to the buffer after the call, while the graph of backward keeps the alias.
struct TorchScriptModule::Script {
  struct Buffer {
    torch::jit::Module module;
    std::string name;
    at::Tensor registered, alias;
  };
  torch::jit::Module module;
  std::vector<Buffer> buffers;

  std::shared_ptr<torch::jit::Graph> inlined_forward() const {
    auto graph = torch::jit::toGraphFunction(module.get_method("forward").function()).graph()->copy();
    torch::jit::Inline(*graph);
    return graph;
  }
  void give_buffers() {
    for (Buffer& one : buffers) one.module.setattr(one.name, one.alias = one.registered.detach());
  }
  void take_buffers() {
    for (Buffer& one : buffers)
      if (const at::Tensor now = one.module.attr(one.name).toTensor(); !now.is_same(one.alias))
        one.registered.set_data(now.detach());
  }
};

TorchScriptModule::TorchScriptModule(const std::string& path)
    : torch::nn::Module("TorchScriptModule"), path_(path), script_(std::make_unique<Script>(Script{loaded(path), {}})) {
  register_tensors();
  read_inputs();
  train(script_->module.is_training());
}

TorchScriptModule::~TorchScriptModule() = default;

// The registered tensors are those that the file's code uses: what replaces their data, as the engine does, is seen there.
void TorchScriptModule::register_tensors() {
  exported::ModuleTree tree(*this);
  std::vector<std::pair<std::string, at::Tensor>> known;
  const auto tied_to = [&](const at::Tensor& tensor) {
    return std::find_if(known.begin(), known.end(), [&](const auto& one) { return is_same_memory(one.second, tensor); });
  };
  for (const auto& child : script_->module.named_modules()) {
    torch::jit::Module module = child.value;
    const std::string head = child.name.empty() ? std::string() : child.name + ".";
    for (const auto& parameter : module.named_parameters(/*recurse=*/false)) {
      const std::string name = head + parameter.name;
      if (const auto same = tied_to(parameter.value); same != known.end()) {
        module.setattr(parameter.name, same->second);
        tied_.emplace_back(name, same->first);
        continue;
      }
      const auto [place, last] = tree.place_of(name);
      known.emplace_back(name, place->register_parameter(last, parameter.value, parameter.value.requires_grad()));
      module.setattr(parameter.name, known.back().second);
      if (!leading_.defined() && parameter.value.is_floating_point()) leading_ = known.back().second;
    }
    for (const auto& buffer : module.named_buffers(/*recurse=*/false)) {
      const auto [place, last] = tree.place_of(head + buffer.name);
      script_->buffers.push_back({module, buffer.name, place->register_buffer(last, buffer.value), {}});
    }
  }
  if (!leading_.defined())
    throw Error(ErrorCode::kUnsupported, path_ + ": the module has no parameters of floating point",
                "torch.jit.freeze and optimize_for_inference make constants of them: save the module before");
}

void TorchScriptModule::read_inputs() {
  const auto method = script_->module.find_method("forward");
  if (!method)
    throw Error(ErrorCode::kUnsupported, path_ + ": the module has no method 'forward'",
                "script a module that has one, and returns the loss");
  refuse_assigned_attributes(*script_->inlined_forward()->block(), path_);
  const auto& arguments = method->function().getSchema().arguments();
  for (size_t i = 1; i < arguments.size(); ++i) {
    const c10::Argument& one = arguments[i];
    const bool is_tensor = one.type()->isSubtypeOf(*c10::TensorType::get()) || *one.type() == *c10::OptionalType::ofTensor();
    if (!is_tensor && !one.default_value())
      throw Error(ErrorCode::kUnsupported,
                  path_ + ": the argument '" + one.name() + "' of forward is of type " + one.type()->repr_str() +
                      " and has no default, and a batch has tensors",
                  "script a module around it whose forward takes tensors");
    if (is_tensor) inputs_.push_back({one.name(), !one.default_value()});
  }
}

at::Tensor TorchScriptModule::forward(const NamedBatch& batch) {
  std::unordered_map<std::string, c10::IValue> given;
  std::string known, missing, unknown;
  for (const Input& one : inputs_) {
    known += (known.empty() ? "" : ", ") + one.name;
    const auto found = batch.find(one.name);
    if (found == batch.end()) {
      if (one.is_needed) missing += (missing.empty() ? "" : ", ") + one.name;
      continue;
    }
    const bool is_converted = found->second.defined() && found->second.is_floating_point();
    given.emplace(one.name, is_converted ? found->second.to(leading_.scalar_type()) : found->second);
  }
  for (const auto& [name, tensor] : batch)
    if (std::none_of(inputs_.begin(), inputs_.end(), [&, &name = name](const Input& one) { return one.name == name; }))
      unknown += (unknown.empty() ? "" : ", ") + name;
  if (!missing.empty() || !unknown.empty())
    throw Error(ErrorCode::kArgument,
                path_ + ": forward takes " + known + (missing.empty() ? "" : "; missing in the batch: " + missing) +
                    (unknown.empty() ? "" : "; unknown: " + unknown),
                "name the entries of the batch as the arguments of forward");
  // As it is written, operator by operator: so autograd and ZeRO's interception see each of them, and no run differs from the
  // first.
  const torch::jit::GraphOptimizerEnabledGuard as_written(false);
  c10::IValue result;
  script_->give_buffers();
  try {
    result = script_->module.get_method("forward")({}, given);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(ErrorCode::kArgument, path_ + ": forward failed: " + reason_of(error),
                "check the batch: its shapes, dtypes and device are those that the Python model takes");
  }
  script_->take_buffers();
  const at::Tensor loss = loss_in(result);
  if (!loss.defined() || loss.dim() != 0)
    throw Error(ErrorCode::kArgument, path_ + ": forward returned no scalar tensor, and a loss is one",
                "script a module whose forward returns the loss, or a dict or tuple with 'loss' or with the loss first");
  if (is_training() && c10::GradMode::is_enabled() && !loss.requires_grad())
    throw Error(ErrorCode::kArgument, path_ + ": the loss has no gradient",
                "it depends on no parameter that requires one: are all of them frozen?");
  return loss;
}

void TorchScriptModule::train(bool on) {
  torch::nn::Module::train(on);
  script_->module.train(on);
}

size_t TorchScriptModule::operators() const { return operators_in(*script_->inlined_forward()->block()); }

}  // namespace gannet
