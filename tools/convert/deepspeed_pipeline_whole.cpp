// A pipeline with ZeRO off. Each stage's optimizer numbers its parameters: first those of its tied
// modules, then those of its layers in order. Neither the layers of a stage nor its tied modules are
// recorded. Both are deduced from the number and shapes of the optimizers' states (in fp16, from
// their masters' values): the search tries every division of the layers among the stages that gives
// each stage the right number of parameters.
//
// A tied module's layer that has its own function, such as an output layer, has no file. The
// optimizer of its stage still holds the module, with the same states as the other stage's.
#include <algorithm>
#include <map>
#include <set>

#include "base/format.h"
#include "convert/deepspeed_state.h"

namespace gannet::convert {
namespace {

constexpr size_t kMostAttempts = 20'000;  // beyond this the division counts as ambiguous

// A layer's tensors that may be parameters.
std::vector<NamedNode> parameters_of(const DeepSpeedLayer& layer, const std::set<std::string>& buffers) {
  std::vector<NamedNode> parameters;
  for (const auto& [key, node] : layer.tensors.entries()) {
    const std::string name = formatted("{}.{}", layer.number, key);
    if (node.is_tensor() && c10::isFloatingType(node.tensor().dtype) && !buffers.contains(name))
      parameters.emplace_back(name, node);
  }
  return parameters;
}

int64_t places_of(const std::vector<NamedNode>& parameters, bool by_value) {
  int64_t numel = 0;
  for (const auto& [name, node] : parameters) numel += by_value ? node.tensor().numel() : 1;
  return numel;
}

bool is_by_value(const files::Node& optimizer) { return optimizer.find("fp32_groups_flat") || optimizer.find("fp32_groups"); }

// The number of an optimizer's parameters, or of their elements if they are matched by value.
int64_t places_in(const files::Node& optimizer) {
  int64_t numel = 0;
  if (const auto flat = optimizer.find("fp32_groups_flat")) {
    for (const files::Node& group : flat->items()) numel += group.tensor().numel();
  } else if (const auto groups = optimizer.find("fp32_groups")) {
    for (const files::Node& group : groups->items())
      for (const files::Node& master : group.items()) numel += master.tensor().numel();
  } else {
    const OptimizerStates states(optimizer);
    for (size_t g = 0; g < states.groups().size(); ++g) numel += static_cast<int64_t>(states.indices(g).size());
  }
  return numel;
}

bool are_equal(const std::vector<NamedNode>& one, const std::vector<NamedNode>& other) {
  const auto rest = [](const std::string& name) { return name.substr(name.find('.')); };
  const auto agree = [&](const auto& equal) { return std::equal(one.begin(), one.end(), other.begin(), other.end(), equal); };
  return agree([&](const NamedNode& a, const NamedNode& b) {
           return rest(a.first) == rest(b.first) && a.second.tensor().sizes == b.second.tensor().sizes &&
                  a.second.tensor().dtype == b.second.tensor().dtype;
         }) &&
         agree([&](const NamedNode& a, const NamedNode& b) {
           return have_equal_values(files::whole(a.second), files::whole(b.second), a.second.tensor().dtype);
         });
}

class Division {
 public:
  explicit Division(const DeepSpeedFolder& folder) : path_(folder.path) {
    std::set<std::string> buffers;
    for (const DeepSpeedFolder& stage : folder.stages) {
      if (const auto names = stage.models[0].find("buffer_names"))
        for (const files::Node& name : names->items()) buffers.insert(name.text());
      optimizers_.push_back(stage.models[0].find("optimizer"));
    }
    for (const DeepSpeedLayer& layer : folder.layers) layers_.push_back(parameters_of(layer, buffers));
    for (size_t l = 0; l < layers_.size(); ++l) {
      size_t first = 0;
      while (first < l && (layers_[l].empty() || first_equal_[first] != first || !are_equal(layers_[first], layers_[l]))) ++first;
      first_equal_.push_back(first);
    }
  }

  bool has_optimizers() const {
    return std::any_of(optimizers_.begin(), optimizers_.end(), [](const auto& one) { return one.has_value(); });
  }

  // Without the optimizers' states: every parameter counts as trained.
  std::vector<DeepSpeedState> weights() const {
    std::vector<DeepSpeedState> states(optimizers_.size());
    for (size_t l = 0; l < layers_.size(); ++l)
      for (const auto& [name, node] : layers_[l])
        if (first_equal_[l] == l)
          states[0].trained.push_back({name, node.tensor().sizes, master_dtype(node.tensor().dtype), files::whole(node), {}});
    for (size_t l = 0; l < layers_.size(); ++l) note_equal(l, states[0]);
    return states;
  }

  std::vector<DeepSpeedState> with_optimizers() {
    for (const auto& optimizer : optimizers_) {
      if (!optimizer)
        throw Error(ErrorCode::kMismatch, formatted("{}: some stages of the pipeline have an optimizer, and others none", path_),
                    "are the files of one save?");
      wanted_.push_back(places_in(*optimizer));
      by_value_.push_back(is_by_value(*optimizer));
    }
    // First try the divisions without frozen parameters: allowing frozen ones gives far more.
    for (const bool may_leave_out : {false, true}) {
      may_leave_out_ = may_leave_out;
      try_tied(kNone);
      for (size_t l = 0; l < layers_.size(); ++l)
        if (!layers_[l].empty() && first_equal_[l] == l) try_tied(l);
      if (!found_.empty() || is_ambiguous_) break;
    }
    if (found_.size() != 1 || is_ambiguous_) refuse();
    std::vector<DeepSpeedState> states = std::move(found_.begin()->second);
    for (size_t l = 0; l < layers_.size(); ++l) note_equal(l, states[0]);
    return states;
  }

 private:
  static constexpr size_t kNone = SIZE_MAX;

  [[noreturn]] void refuse() const {
    const char* const next =
        "let DeepSpeed load it and save it at ZeRO stage 1, which keeps names; --weights-only leaves the states out";
    if (is_ambiguous_ || found_.size() > 1)
      throw Error(
          ErrorCode::kUnsupported,
          formatted("{}: with ZeRO off, the optimizers of a pipeline number their parameters, and more than one division of "
                    "the layers among the {} stages fits the numbers",
                    path_, optimizers_.size()),
          next);
    throw Error(
        ErrorCode::kMismatch,
        formatted("{}: the parameters of the {} stages' optimizers are not those of the {} files of layers: no division of the "
                  "layers among the stages has their number and shapes",
                  path_, optimizers_.size(), layers_.size()),
        "copy the files of all layers and stages of one save into one folder; --weights-only leaves the states out");
  }

  void note_equal(size_t layer, DeepSpeedState& state) const {
    const size_t first = first_equal_[layer];
    for (size_t i = 0; first != layer && i < layers_[layer].size(); ++i)
      state.aliases.emplace_back(layers_[layer][i].first, layers_[first][i].first);
  }

  // Tries all divisions in which layer `tied` and the layers with equal tensors are instances of one
  // tied module.
  void try_tied(size_t tied) {
    tied_ = tied;
    chosen_.clear();
    has_tied_.clear();
    try_stage(0);
  }

  bool is_tied(size_t layer) const { return tied_ != kNone && first_equal_[layer] == tied_; }

  void try_stage(size_t begin) {
    const size_t stage = chosen_.size();
    if (stage == optimizers_.size()) {
      if (begin == layers_.size()) keep();
      return;
    }
    std::vector<NamedNode> own;
    bool has_tied = false;
    for (size_t end = begin; end <= layers_.size(); ++end) {
      if (end > begin) {
        has_tied |= is_tied(end - 1);
        if (!is_tied(end - 1)) own.insert(own.end(), layers_[end - 1].begin(), layers_[end - 1].end());
      }
      if (!has_tied) try_candidates(stage, own, false, end);
      if (tied_ == kNone) continue;
      std::vector<NamedNode> with_tied = layers_[tied_];
      with_tied.insert(with_tied.end(), own.begin(), own.end());
      try_candidates(stage, with_tied, true, end);
    }
  }

  void try_candidates(size_t stage, const std::vector<NamedNode>& candidates, bool has_tied, size_t end) {
    const int64_t numel = places_of(candidates, by_value_[stage]);
    if (may_leave_out_ ? numel < wanted_[stage] : numel != wanted_[stage]) return;
    if (++attempts_ > kMostAttempts) is_ambiguous_ = true;
    if (is_ambiguous_) return;
    DeepSpeedState state;
    size_t ambiguous = 0;
    try {
      add_numbered(*optimizers_[stage], candidates, state);
    } catch (const NoAssignment& none) {
      if (!none.ambiguous) return;
      ambiguous = 1;  // it counts only if the other stages fit
    }
    chosen_.push_back(std::move(state));
    has_tied_.push_back(has_tied);
    ambiguous_stages_ += ambiguous;
    try_stage(end);
    ambiguous_stages_ -= ambiguous;
    chosen_.pop_back();
    has_tied_.pop_back();
  }

  // A tied module is on at least two stages, or in two files, and has the same states everywhere.
  // Otherwise the division without it is the one to keep.
  bool is_really_tied() const {
    if (tied_ == kNone) return true;
    const auto files = std::count(first_equal_.begin(), first_equal_.end(), tied_);
    if (std::count(has_tied_.begin(), has_tied_.end(), true) < 2 && files < 2) return false;
    std::map<std::string, const ImportedTensor*> first;
    for (const DeepSpeedState& state : chosen_)
      for (const ImportedTensor& tensor : state.trained) {
        const auto [place, is_new] = first.emplace(tensor.name, &tensor);
        if (is_new) continue;
        for (const auto& [name, pieces] : tensor.states) {
          const auto other = place->second->states.find(name);
          if (other == place->second->states.end() || !have_equal_values(other->second, pieces, c10::kFloat)) return false;
        }
      }
    return true;
  }

  // Divisions that give every parameter the same states count as one: layers without tensors may be on
  // either side of a boundary.
  void keep() {
    if (!is_really_tied()) return;
    if (ambiguous_stages_ > 0) {
      is_ambiguous_ = true;
      return;
    }
    std::string division;
    for (const DeepSpeedState& state : chosen_) {
      for (const ImportedTensor& tensor : state.trained) {
        division += tensor.name;
        for (const auto& [name, pieces] : tensor.states)
          for (const files::StoredPiece& piece : pieces)
            division += piece.file ? formatted(" {} {}", files::place_of(piece.tensor), piece.begin) : " -";
        division += '\n';
      }
      division += '\n';
    }
    found_.try_emplace(std::move(division), chosen_);
  }

  const std::string path_;
  std::vector<std::optional<files::Node>> optimizers_;  // [stages]
  std::vector<std::vector<NamedNode>> layers_;          // [files of layers]
  std::vector<size_t> first_equal_;                     // [files of layers] the first one with equal tensors
  std::vector<int64_t> wanted_;                         // [stages] places_in(optimizer)
  std::vector<bool> by_value_;                          // [stages]
  // Search state:
  size_t tied_ = kNone, attempts_ = 0, ambiguous_stages_ = 0;
  bool may_leave_out_ = false, is_ambiguous_ = false;
  std::vector<DeepSpeedState> chosen_;  // for the stages before the current one
  std::vector<bool> has_tied_;
  std::map<std::string, std::vector<DeepSpeedState>> found_;
};

}  // namespace

std::vector<DeepSpeedState> pipeline_without_zero(const DeepSpeedFolder& folder, bool weights_only) {
  Division division(folder);
  if (!weights_only && division.has_optimizers()) return division.with_optimizers();
  std::vector<DeepSpeedState> states = division.weights();
  if (!division.has_optimizers()) states[0].notes.push_back("optimizer states: the save had no optimizer");
  return states;
}

}  // namespace gannet::convert
