// One row per key: its default is the member's default, a given value reaches the member, and a value out of range is refused
// with the row's meaning. Each test walks all rows, so that a new key is tested by its row.
#include <gmock/gmock.h>

#include <charconv>
#include <set>
#include <type_traits>

#include "config/convert.h"
#include "config/document.h"
#include "config/effective.h"
#include "config/parse.h"
#include "expect_error.h"

namespace gannet::config {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using Kind = Member::Kind;

std::vector<const Key*> bound_keys() {
  std::vector<const Key*> result;
  for (const Key* key : all_keys())
    if (key->member.kind != Kind::kNone && is_read(key->status)) result.push_back(key);
  return result;
}

const char* name_of(DType dtype) { return dtype == DType::kFloat16 ? "fp16" : dtype == DType::kBFloat16 ? "bf16" : "fp32"; }

template <typename T>
Value value_of(const T& value) {
  return value;
}
template <>
Value value_of(const DType& value) {
  return name_of(value);
}
template <>
Value value_of(const std::vector<std::string>& value) {
  return List(value.begin(), value.end());
}
template <typename T>
Value value_of(const std::optional<T>& value) {
  return value ? value_of(*value) : Value();
}

// Calls `use` with the member itself.
template <typename Use>
Value with_member(const Key& key, Settings& settings, Use use) {
  void* const at = key.member.of(settings);
  switch (key.member.kind) {
    case Kind::kBool:
      return use(*static_cast<bool*>(at));
    case Kind::kInt:
      return use(*static_cast<int64_t*>(at));
    case Kind::kNumber:
      return use(*static_cast<double*>(at));
    case Kind::kString:
      return use(*static_cast<std::string*>(at));
    case Kind::kStrings:
      return use(*static_cast<std::vector<std::string>*>(at));
    case Kind::kList:
      return use(*static_cast<List*>(at));
    case Kind::kDict:
    case Kind::kEntry:
      return use(*static_cast<Dict*>(at));
    case Kind::kOptionalInt:
      return use(*static_cast<std::optional<int64_t>*>(at));
    case Kind::kOptionalNumber:
      return use(*static_cast<std::optional<double>*>(at));
    case Kind::kOptionalDType:
      return use(*static_cast<std::optional<DType>*>(at));
    case Kind::kNone:
      break;
  }
  ADD_FAILURE() << key.path << " has no member";
  return {};
}

// The value of the key that the member represents.
Value held(const Key& key, Settings& settings) {
  const Value value = with_member(key, settings, [](const auto& member) { return value_of(member); });
  if (key.member.kind == Kind::kEntry) {
    const Value* entry = value.as_dict().find(key.name());
    return entry ? *entry : Value();
  }
  if (key.member.kind != Kind::kBool || key.type == Type::kBool) return value;
  const std::string choices(key.range);
  return value.as_bool() ? choices.substr(choices.find('|') + 1) : choices.substr(0, choices.find('|'));
}

// Value of a member after null: nullopt, "", 0.
Value empty(const Key& key) {
  Settings settings;
  return with_member(key, settings, [](const auto& member) { return value_of(std::remove_cvref_t<decltype(member)>()); });
}

double number_of(std::string_view text) {
  double number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// A legal value other than the default.
Value another(const Key& key) {
  const Value& given = default_of(key);
  switch (key.type) {
    case Type::kBool:
      return !given.as_bool();
    case Type::kInt:
    case Type::kSize:
    case Type::kBytes:
      return given == Value(3) ? 2 : 3;
    case Type::kNumber:
      if (const size_t dots = key.range.find(".."); dots != key.range.npos)
        return (number_of(key.range.substr(0, dots)) + number_of(key.range.substr(dots + 2))) / 2;
      return given == Value(2.5) ? 3.5 : 2.5;
    case Type::kChoice:
    case Type::kWord: {
      const std::string choices(key.range), first = choices.substr(0, choices.find('|'));
      return given == Value(first) ? choices.substr(choices.rfind('|') + 1) : first;
    }
    case Type::kString:
    case Type::kFile:
      return "another";
    case Type::kDType:
      return "bf16";
    case Type::kStrings:
      return List{"one", "two"};
    case Type::kObjects:
      return List{Dict{{"one", 1}}};
    case Type::kFree:
      return Dict{{"one", 1}};
    default:
      ADD_FAILURE() << key.path << ": a row with a member has no such type";
      return {};
  }
}

std::shared_ptr<const Document> document_with(const Key& key, const Value& value) {
  Dict dict;
  Dict* section = &dict;
  std::string_view path = key.path;
  for (size_t slash; (slash = path.find('/')) != std::string_view::npos; path.remove_prefix(slash + 1)) {
    Value& member = (*section)[path.substr(0, slash)];
    member = Dict();
    section = &member.as_dict();
  }
  (*section)[path] = value;
  return Document::from_dict(dict, "code");
}

// Stand for any scalar, string, list or dictionary, and for any optional: an optional takes neither kind of another.
template <typename T>
constexpr bool is_optional = false;
template <typename T>
constexpr bool is_optional<std::optional<T>> = true;
struct AnyPlain {
  template <typename T>
    requires(!std::is_aggregate_v<T> && !is_optional<T>)
  operator T() const;
};
struct AnyOptional {
  template <typename T>
    requires(is_optional<T>)
  operator T() const;
};

// How many members an aggregate has, those of aggregates inside counted one by one: how many initializers it takes.
template <typename T, typename... Initializers>
consteval size_t count_members() {
  if constexpr (requires { T{std::declval<Initializers>()..., AnyPlain{}}; })
    return count_members<T, Initializers..., AnyPlain>();
  else if constexpr (requires { T{std::declval<Initializers>()..., AnyOptional{}}; })
    return count_members<T, Initializers..., AnyOptional>();
  else
    return sizeof...(Initializers);
}

TEST(Rows, EveryActiveKeyHasAMemberAndEveryMemberHasARow) {
  Settings settings;
  std::set<const void*> members, dicts;
  std::set<std::pair<const void*, std::string_view>> entries;
  for (const Key* key : all_keys()) {
    SCOPED_TRACE(key->path);
    const bool is_refused = key->status == Status::kUnsupported;  // it may have a member, for its default
    EXPECT_TRUE(is_refused || (key->member.kind != Kind::kNone) == (is_read(key->status) && !key->is_section()));
    if (key->member.kind == Kind::kNone) continue;
    void* const at = key->member.of(settings);
    if (key->member.kind == Kind::kEntry) {
      EXPECT_TRUE(entries.emplace(at, key->name()).second) << "a row before it fills the same entry";
      dicts.insert(at);
    } else {
      EXPECT_TRUE(members.insert(at).second) << "a row before it fills the same member";
    }
  }
  for (const void* dict : dicts) EXPECT_TRUE(members.insert(dict).second) << "a row fills the whole of a Dict of entries";
  EXPECT_EQ(count_members<Fp16>(), 7u);
  EXPECT_EQ(members.size(), count_members<SettingsMembers>()) << "a member of Settings has no row";
}

TEST(Rows, TheDefaultOfARowIsTheDefaultOfItsMember) {
  Settings settings;
  for (const Key* key : bound_keys()) {
    SCOPED_TRACE(key->path);
    const Value written = parse_value(key->default_json);
    const bool is_empty = written.is_null() && key->member.kind != Kind::kEntry;
    EXPECT_EQ(held(*key, settings), is_empty ? empty(*key) : default_of(*key)) << held(*key, settings).to_json();
    EXPECT_EQ(default_of(*key).is_null(), written.is_null());
  }
}

TEST(Rows, AGivenValueReachesItsMemberAndKeepsItsOrigin) {
  for (const Key* key : bound_keys()) {
    SCOPED_TRACE(key->path);
    const Value value = another(*key);
    const auto document = document_with(*key, value);
    Settings settings = settings_of(*document), defaults;
    EXPECT_EQ(held(*key, settings), value) << held(*key, settings).to_json();
    EXPECT_FALSE(held(*key, defaults) == value) << "another value was to be given";
    for (const Key* other : bound_keys()) {
      if (other != key) {
        EXPECT_EQ(held(*other, settings), held(*other, defaults)) << "and to " << other->path;
      }
    }
    EffectiveValues values(*document);
    for (const EffectiveValue& line : values.take()) {
      const bool is_here = line.path == "/" + std::string(key->path) || line.path.starts_with("/" + std::string(key->path) + "/");
      EXPECT_EQ(line.origin, is_here ? "code" : "default") << line.path;
    }
  }
}

TEST(Rows, AnAutoAndANullLeaveTheDefault) {
  for (const Key* key : bound_keys()) {
    SCOPED_TRACE(key->path);
    Settings settings = settings_of(*document_with(*key, "auto")), defaults;
    // A key that has "auto" among its choices takes it as a value.
    const bool is_choice =
        key->type == Type::kChoice && ("|" + std::string(key->range) + "|").find("|auto|") != std::string::npos;
    EXPECT_EQ(held(*key, settings), is_choice ? Value("auto") : held(*key, defaults));
    if (!default_of(*key).is_null()) continue;
    settings = settings_of(*document_with(*key, nullptr));
    EXPECT_EQ(held(*key, settings), held(*key, defaults));
  }
}

TEST(Rows, AValueOutOfRangeIsRefusedWithTheMeaningAndTheDefaultOfItsRow) {
  int refused = 0;
  for (const Key* key : bound_keys()) {
    SCOPED_TRACE(key->path);
    const std::string_view range = key->range;
    const size_t dots = range.find("..");
    Value wrong;
    if (range.starts_with(">="))
      wrong = number_of(range.substr(2)) - 1;
    else if (range.starts_with(">"))
      wrong = number_of(range.substr(1));
    else if (dots != std::string_view::npos)
      wrong = number_of(range.substr(dots + 2)) + 1;
    else if (!range.empty())
      wrong = "no such word";
    else
      continue;
    const Error error = error_of([&] { document_with(*key, wrong); });
    EXPECT_THAT(error.message(), HasSubstr(dotted(key->path) + " must be " + wanted(*key)));
    EXPECT_THAT(error.next_step(), StartsWith(std::string(key->meaning)));
    if (key->default_json != "null") {
      EXPECT_THAT(error.next_step(), HasSubstr("default " + std::string(key->default_json)));
    }
    ++refused;
  }
  EXPECT_GT(refused, 30);
}

// Each of these has the reason beside its row.
TEST(Rows, OfNumbersHaveARangeOrAReason) {
  const std::set<std::string_view> free = {"fp16/loss_scale_window", "fp16/hysteresis", "fp16/min_loss_scale", "gannet/seed"};
  for (const Key* key : bound_keys()) {
    const bool is_number =
        key->type == Type::kInt || key->type == Type::kNumber || key->type == Type::kSize || key->type == Type::kBytes;
    if (!is_number) continue;
    EXPECT_EQ(key->range.empty(), free.contains(key->path)) << key->path;
  }
}

}  // namespace
}  // namespace gannet::config
