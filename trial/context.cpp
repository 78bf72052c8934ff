// TrialContext: registers engines and reducers, and answers the queries of a trial.
#include <gannet/error.h>
#include <gannet/pipe.h>
#include <gannet/trial_context.h>

#include <algorithm>
#include <cctype>

namespace gannet {

Config overwrite_deepspeed_config(const Value& base, const Dict& arguments) {
  if (!base.is_string() && !base.is_dict())
    throw Error(ErrorCode::kArgument, std::string("deepspeed_config is ") + base.type_name() + ", not a path or a dictionary",
                "give the hyperparameter deepspeed_config, or --deepspeed_config FILE");
  Config config = base.is_string() ? Config(base.as_string()) : Config(base.as_dict());
  if (!arguments.empty()) config.overwrite(arguments, "overwrite_deepspeed_args");
  return config;
}

namespace detail {

ShareOfSamples validation_share(loading::Source source, int64_t rank, int64_t ranks) {
  const auto size = source.read && source.size ? source.size() : std::nullopt;
  if (!size) return {std::move(source), -1};
  const auto samples = static_cast<int64_t>(*size);
  if (samples < ranks)
    throw Error(ErrorCode::kArgument,
                "the validation data have " + std::to_string(samples) + " samples for " + std::to_string(ranks) + " ranks",
                "every rank needs one");
  const int64_t mine = (samples - rank + ranks - 1) / ranks;
  source.size = [mine] { return std::optional<size_t>(mine); };
  source.read = [rank, ranks, read = source.read](loading::Indices indices) -> loading::Any {
    std::vector<size_t> places;
    places.reserve(indices.size());
    for (const size_t index : indices) places.push_back(index * static_cast<size_t>(ranks) + static_cast<size_t>(rank));
    return read(places);
  };
  return {std::move(source), mine};
}

}  // namespace detail

TrialContext::TrialContext(TrialSettings settings, std::shared_ptr<ProcessGroup> world)
    : settings_(std::move(settings)), world_(std::move(world)) {}

Config TrialContext::deepspeed_config() const {
  const Hparams& hparams = settings_.hparams;
  const Dict overwrite = hparams.get<Dict>("overwrite_deepspeed_args", {});
  if (!hparams.has("deepspeed_config"))
    throw Error(ErrorCode::kArgument, hparams.where() + ": there is no deepspeed_config",
                "give --deepspeed_config FILE, or the hyperparameter deepspeed_config: a path or the dictionary itself");
  return overwrite_deepspeed_config(hparams.get<Value>("deepspeed_config"), overwrite);
}

void TrialContext::add_engine(std::shared_ptr<EngineBase> engine, const std::string& name) {
  if (!engine)
    throw Error(ErrorCode::kArgument, "wrap_model_engine was given no engine",
                "give it what gannet::initialize returns as .engine");
  if (is_constructed_)
    throw Error(ErrorCode::kOrder, "wrap_model_engine was called after the trial's constructor",
                "register every engine in the constructor: checkpoints are loaded right after it");
  const bool is_first = engines_.empty();
  const std::string folder = !name.empty() ? name : is_first ? "engine" : "engine_" + std::to_string(engines_.size());
  const bool is_plain =
      std::all_of(folder.begin(), folder.end(), [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-'; });
  if (!is_plain)
    throw Error(ErrorCode::kArgument, "wrap_model_engine: '" + folder + "' is not a valid folder name",
                "use letters, digits, '_' and '-'");
  for (const WrappedEngine& known : engines_) {
    if (known.engine == engine)
      throw Error(ErrorCode::kArgument, "wrap_model_engine was given the engine '" + known.name + "' twice", "register it once");
    if (known.name == folder)
      throw Error(ErrorCode::kArgument, "wrap_model_engine: two engines are called '" + folder + "'",
                  "give them names of their own");
  }
  if (std::dynamic_pointer_cast<PipelineEngine>(engine)) accumulates_ = false;  // its train_batch() is a whole step
  engines_.push_back({folder, std::move(engine)});
}

std::shared_ptr<const Mpu> TrialContext::wrap_mpu(std::shared_ptr<const Mpu> mpu) {
  if (!mpu) throw Error(ErrorCode::kArgument, "wrap_mpu was given no mpu", "give it a gannet::Mpu");
  mpu_ = std::move(mpu);
  return mpu_;
}

void TrialContext::add_reducer(std::shared_ptr<MetricReducer> reducer, const std::string& name, ReducerUse use) {
  if (!reducer) throw Error(ErrorCode::kArgument, "wrap_reducer was given no reducer", "give it a gannet::MetricReducer");
  if (is_constructed_)
    throw Error(ErrorCode::kOrder, "wrap_reducer was called after the trial's constructor",
                "register every reducer in the constructor: checkpoints are loaded right after it");
  for (const Reducing& known : reducers_)
    if (!name.empty() && known.name == name)
      throw Error(ErrorCode::kArgument, "wrap_reducer: two reducers are called '" + name + "'", "give them names of their own");
  reducer->reset();
  reducers_.push_back({name, std::move(reducer), use});
}

std::shared_ptr<FunctionReducer> TrialContext::wrap_reducer(std::function<Value(const List&)> function, const std::string& name,
                                                            ReducerUse use) {
  return wrap_reducer(std::make_shared<FunctionReducer>(std::move(function)), name, use);
}

EngineBase& TrialContext::first(const char* asked) const {
  if (engines_.empty())
    throw Error(ErrorCode::kOrder, std::string(asked) + ": the trial has registered no engine",
                "call context.wrap_model_engine(gannet::initialize(...).engine) in the constructor, before this");
  return *engines_.front().engine;
}

at::Device TrialContext::device() const { return first("to_device").device(); }

LoaderOptions TrialContext::loader_options() const {
  LoaderOptions options = first("loader_options").loader_options();
  if (mpu_) {
    options.rank = mpu_->get_data_parallel_rank();
    options.world_size = mpu_->get_data_parallel_world_size();
  }
  return options;
}

LoaderOptions TrialContext::validation_loader_options() const {
  LoaderOptions options = loader_options();
  options.shuffle = false;
  options.drop_last = false;
  options.micro_batches_multiple = 1;
  return options;
}

int64_t TrialContext::get_train_micro_batch_size_per_gpu() const {
  return first("get_train_micro_batch_size_per_gpu").train_micro_batch_size_per_gpu();
}
int64_t TrialContext::get_num_micro_batches_per_slot() const {
  return accumulates_ ? first("get_num_micro_batches_per_slot").gradient_accumulation_steps() : 1;
}
int64_t TrialContext::micro_batches_in_batch() const {
  const auto* const pipeline = dynamic_cast<const PipelineEngine*>(&first("train_batch"));
  return pipeline ? pipeline->gradient_accumulation_steps() : get_num_micro_batches_per_slot();
}
int64_t TrialContext::get_global_batch_size() const { return first("get_global_batch_size").train_batch_size(); }

}  // namespace gannet
