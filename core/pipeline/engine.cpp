// The engine of a pipeline, which initialize() builds from a pipe::Module.
#include <gannet/error.h>
#include <gannet/pipe.h>

#include <exception>

#include "pipeline/driver.h"

namespace gannet {
namespace {

EngineOptions with_stages(const std::shared_ptr<pipe::ModuleImpl>& module, const EngineOptions& options) {
  EngineOptions all = options;
  if (!module) return all;
  all.pipe_stages = module->options().num_stages;
  if (module->options().topology) {
    if (all.mesh || all.mpu)
      throw Error(ErrorCode::kArgument, "initialize was given a mesh or an mpu, and the pipe::Module has a topology",
                  "give it one of them: both say how ranks are laid out");
    all.mesh = module->options().topology->mesh();
  }
  all.build_stage = [module](const RankContext& ranks) { pipeline::Stage::build(*module, ranks); };
  return all;
}

}  // namespace

PipelineEngine::Engine(std::shared_ptr<pipe::ModuleImpl> module, const EngineOptions& options)
    : EngineBase(module, with_stages(module, options)),
      module_(std::move(module)),
      driver_(std::make_unique<pipeline::Driver>(*this, *module_)) {
  if (leftover_micro_batches() == "step")
    throw Error(
        ErrorCode::kUnsupported,
        "gannet.leftover_micro_batches is \"step\": stages of a pipeline take the same number of micro-batches in every step",
        "write \"carry\" or \"drop\"");
}

PipelineEngine::~Engine() = default;

bool PipelineEngine::has_schedule_for(int64_t micro_batches) const { return driver_->has_schedule_for(micro_batches); }
const StepResult& PipelineEngine::last_step() const { return driver_->last_step(); }
bool PipelineEngine::is_first_stage() const { return driver_->first_chunk().is_first(); }
bool PipelineEngine::is_last_stage() const { return driver_->last_chunk().is_last(); }
uint32_t PipelineEngine::stage_id() const { return driver_->first_chunk().index(); }
uint32_t PipelineEngine::num_stages() const { return driver_->first_chunk().count(); }

ProcessTopology PipelineEngine::topology() const {
  const MeshShape& shape = driver_->mesh();
  const uint32_t pipe = shape.size(kPipeAxis), data = shape.size(kDataAxis), tensor = shape.size(kTensorAxis);
  if (tensor > 1) return PipeModelDataParallelTopology(pipe, tensor, data);
  return PipeDataParallelTopology(pipe, data);
}

std::string PipelineEngine::ckpt_layer_path(const std::string& folder, size_t local_layer) const {
  return driver_->layer_files().path_of(folder, local_layer);
}
void PipelineEngine::save_state_dict(const std::string& folder) { driver_->layer_files().save(folder); }
void PipelineEngine::load_state_dir(const std::string& folder, bool strict) { driver_->layer_files().load(folder, strict); }
NamedTensors PipelineEngine::module_state_dict() { return driver_->layer_files().state_dict(); }
void PipelineEngine::load_module_state_dict(const NamedTensors& state, bool strict) {
  driver_->layer_files().load_state_dict(state, strict);
}

pipe::Source PipelineEngine::prepared(pipe::Source source) const {
  if (!source) source = source_;
  if (!source || !batch_fn_) return source;
  return [source = std::move(source), change = batch_fn_]() -> std::optional<pipe::MicroBatch> {
    auto next = source();
    if (next) next = change(std::move(*next));
    return next;
  };
}

double PipelineEngine::run_train_batch(pipe::Source source) { return driver_->train_batch(prepared(std::move(source))); }

pipe::EvalResult PipelineEngine::run_eval_batch(pipe::Source source, const pipe::EvalOptions& options) {
  const bool trains = module_->is_training();
  if (trains) eval();
  try {
    pipe::EvalResult result = driver_->eval_batch(prepared(std::move(source)), options);
    if (trains) train();
    return result;
  } catch (...) {
    const std::exception_ptr failed = std::current_exception();
    try {
      if (trains) train();
    } catch (const Error&) {  // the ranks have lost contact; the first error has the reason
    }
    std::rethrow_exception(failed);
  }
}

}  // namespace gannet
