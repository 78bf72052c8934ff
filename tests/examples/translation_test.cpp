// The translation example's parts: BLEU, pairs, the vocabulary, options. translation_test.py runs the program.
#include <gannet/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/support.h"
#include "bleu.h"
#include "options.h"
#include "pairs.h"
#include "results.h"
#include "vocabulary.h"

namespace {

using gannet::Error;
using gannet::ErrorCode;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using translation::bleu;
using translation::BleuTokens;
using translation::Vocabulary;
namespace fs = std::filesystem;

const std::string kTiny = std::string(GANNET_SOURCE_DIR) + "/tests/examples/data/t5_tiny";

json expected() {
  std::ifstream in(kTiny + "/expected.json");
  return json::parse(in);
}

struct Folder {
  fs::path path = fs::temp_directory_path() / ("translation_test" + std::to_string(::getpid()));
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path / name) << text;
    return path / name;
  }
};

TEST(Pairs, AFileInAFolderOfItsLanguagesIsNamedWithTheArgumentForIt) {
  const Folder folder;
  fs::create_directories(folder.path / "de-en");
  folder.write("de-en/train.json", "{}");
  try {
    translation::read_pairs(folder.path / "train.json", "de", "en", {});
    FAIL() << "there is no such file";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound);
    EXPECT_THAT(error.what(), HasSubstr("give --dataset_config de-en"));
  }
}

// A disk without room: the results of former runs stay whole.
TEST(Results, AreWrittenWholeOrNotAtAll) {
  const Folder folder;
  translation::save_metrics(folder.path, "train", gannet::Dict{{"train_loss", 1.5}});
  const auto text_of = [&](const char* name) {
    std::ifstream in(folder.path / name);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  const std::string former = text_of("all_results.json");
  ASSERT_THAT(former, HasSubstr("1.5"));
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit little{8, limit.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &little);
  EXPECT_THROW(translation::save_metrics(folder.path, "train", gannet::Dict{{"train_loss", 2.5}}), Error);
  setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(text_of("train_results.json"), former);
  EXPECT_EQ(text_of("all_results.json"), former);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path), fs::directory_iterator()), 2);
}

TEST(Bleu, IsSacrebleus) {
  const json all = expected();
  int64_t above = 0;
  for (const json& one : all["bleu"]) {
    const auto texts = one["texts"].get<std::vector<std::string>>(),
               references = one["references"].get<std::vector<std::string>>();
    EXPECT_NEAR(bleu(texts, references), one["13a"].get<double>(), 1e-9) << one;
    EXPECT_NEAR(bleu(texts, references, BleuTokens::kNone), one["none"].get<double>(), 1e-9) << one;
    above += one["none"].get<double>() > 0;
  }
  EXPECT_GE(above, 4);
}

TEST(Bleu, CutsPunctuationOffWords) {
  EXPECT_THAT(translation::bleu_tokens("It's 1,000.5 (or 3-4%), &lt;x&gt;.", BleuTokens::k13a),
              ElementsAre("It's", "1,000.5", "(", "or", "3", "-", "4", "%", ")", ",", "<", "x", ">", "."));
  EXPECT_NEAR(bleu({"a b c d", "e"}, {"a b c d", "e"}), 100, 1e-9);
  EXPECT_EQ(bleu({}, {}), 0);
  EXPECT_THAT(gannet::error_of(ErrorCode::kArgument, [] { bleu({"a"}, {}); }), HasSubstr("1 texts for 0 references"));
}

TEST(Vocabulary, CutsTextsAsTransformersTokenizerDoes) {
  const json all = expected();
  const Vocabulary vocabulary(kTiny + "/spiece.model");
  EXPECT_EQ(vocabulary.pad(), 0);
  EXPECT_EQ(vocabulary.end(), 1);
  for (size_t i = 0; i < all["sentences"].size(); ++i) {
    const auto tokens = all["tokens"][i].get<std::vector<int64_t>>();
    EXPECT_EQ(vocabulary.encode(all["sentences"][i], 1000), tokens);
    EXPECT_EQ(vocabulary.decode(tokens), all["decoded"][i]);
  }
  const auto cut = vocabulary.encode(all["sentences"][0], 4);
  EXPECT_EQ(cut.size(), 4);
  EXPECT_EQ(cut.back(), 1);
  // Labels that do not count, and T5's sentinels.
  EXPECT_EQ(vocabulary.decode({-100, 0, 79}), "");
}

TEST(Vocabulary, IsTrainedWithT5sFirstTokensAndRepeats) {
  const Folder folder;
  std::vector<std::string> sentences;
  for (const auto& pair :
       translation::read_pairs(std::string(GANNET_SOURCE_DIR) + "/examples/translation/numbers/ro-en/train.json", "en", "ro")) {
    sentences.push_back(pair.source);
    sentences.push_back(pair.target);
  }
  ASSERT_EQ(sentences.size(), 2 * 540);
  const std::string one = folder.path / "new/one.model", two = folder.path / "two.model";
  Vocabulary::train(sentences, 90, one);
  Vocabulary::train(sentences, 90, two);
  const auto bytes = [](const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  EXPECT_EQ(bytes(one), bytes(two));
  const Vocabulary vocabulary(one);
  EXPECT_EQ(vocabulary.pad(), 0);
  EXPECT_EQ(vocabulary.end(), 1);
  EXPECT_LE(vocabulary.size(), 90);
  EXPECT_EQ(vocabulary.decode(vocabulary.encode("două sute șaizeci și unu", 100)), "două sute șaizeci și unu");
  EXPECT_THAT(gannet::error_of(ErrorCode::kArgument, [&] { Vocabulary::train(sentences, 8, two); }),
              HasSubstr("a vocabulary of 8 pieces"));
  EXPECT_THAT(gannet::error_of(ErrorCode::kCorrupt, [&] { Vocabulary{folder.write("x.model", "no model")}; }),
              HasSubstr("x.model"));
  EXPECT_THAT(gannet::error_of(ErrorCode::kNotFound, [&] { Vocabulary{folder.path / "y.model"}; }),
              HasSubstr("--tokenizer_name"));
}

TEST(Pairs, NameTheLineThatIsWrong) {
  const Folder folder;
  const std::string good = R"({"translation": {"en": "one", "ro": "unu"}})";
  const auto file = [&](const std::string& text) { return folder.write("pairs.json", text); };
  const auto read = [&](const std::string& text, const std::string& source = "en") {
    return translation::read_pairs(file(text), source, "ro");
  };
  EXPECT_EQ(read(good + "\n\n" + good + "\n").size(), 2);
  EXPECT_EQ(translation::read_pairs(file(good + "\n" + good), "ro", "en", 1).at(0).source, "unu");
  const auto refused = [&](const std::string& text, const std::string& source = "en") {
    return gannet::error_of(ErrorCode::kArgument, [&] { read(text, source); });
  };
  EXPECT_THAT(refused(good + "\n{\"translation\": "), HasSubstr("pairs.json:2: this line is not JSON"));
  EXPECT_THAT(refused("[1]"), HasSubstr("pairs.json:1: no dictionary 'translation'"));
  EXPECT_THAT(refused(good, "de"), HasSubstr("no text in the language 'de', only in: en, ro"));
  EXPECT_THAT(refused(R"({"translation": {"en": 1, "ro": "unu"}})"), HasSubstr("'en' is not a string"));
  EXPECT_THAT(refused("\n"), HasSubstr("has no pairs"));
  EXPECT_THAT(gannet::error_of(ErrorCode::kNotFound, [] { translation::read_pairs("/no/such.json", "en", "ro"); }),
              HasSubstr("/no/such.json"));
}

translation::Options parsed(std::vector<std::string> words, const gannet::TrainingArguments& arguments = {.do_train = true}) {
  words.insert(words.begin(), "translation");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  return translation::parse_options(static_cast<int>(words.size()), argv.data(), arguments);
}

const std::vector<std::string> kLeast = {"--model_name_or_path", "t5",    "--source_lang=en", "--target-lang", "ro",
                                         "--train_file",         "t.json"};
std::vector<std::string> with(std::vector<std::string> more) {
  more.insert(more.begin(), kLeast.begin(), kLeast.end());
  return more;
}

TEST(TranslationOptions, HaveTheNamesAndDefaultsOfRunTranslation) {
  const auto options = parsed(kLeast);
  EXPECT_EQ(options.model_name_or_path, "t5");
  EXPECT_EQ(options.target_lang, "ro");
  EXPECT_EQ(options.max_source_length, 1024);
  EXPECT_EQ(options.new_tokens(), 127);
  EXPECT_EQ(options.beams(), 1);
  EXPECT_EQ(parsed(with({"--val_max_target_length", "20", "--generation_num_beams", "2"})).new_tokens(), 19);
  EXPECT_EQ(parsed(with({"--num_beams", "4", "--generation_num_beams", "2"})).beams(), 4);
  EXPECT_EQ(parsed(with({"--source_prefix", "translate English to Romanian: "})).source_prefix,
            "translate English to Romanian: ");
  EXPECT_FALSE(parsed(with({"--ignore_pad_token_for_loss", "False"})).ignore_pad_token_for_loss);
  EXPECT_TRUE(parsed(with({"--predict_with_generate"})).predict_with_generate);
  EXPECT_THAT(parsed(with({"--cache_dir", "x", "--use_auth_token"})).without_effect,
              ElementsAre(HasSubstr("--cache_dir has no effect here"), HasSubstr("--use_auth_token has no effect here")));
  EXPECT_EQ(translation::file_of(options, "train"), "t.json");
}

TEST(TranslationOptions, AreRefusedTogether) {
  const std::string all = gannet::error_of(ErrorCode::kArgument, [] {
    parsed({"--max_source_length", "0", "--num_beams", "two", "--source_prefix", "to", "Romanian:", "--forced_bos_token", "ro",
            "--predict_with_generate", "perhaps", "--dataset_config", "ro-en"},
           {.do_eval = true, .do_predict = true});
  });
  for (const char* part : {"--max_source_length must be an integer of at least 1, found '0'", "found 'two'",
                           "--source_prefix takes one value, found also 'Romanian:'", "--forced_bos_token is not built",
                           "--predict_with_generate must be true or false", "--model_name_or_path is missing", "--source_lang",
                           "--dataset_config_name is a folder in --dataset_name", "--do_eval needs --validation_file",
                           "--do_predict needs --test_file"})
    EXPECT_THAT(all, HasSubstr(part));
  EXPECT_THAT(gannet::error_of(ErrorCode::kArgument, [] { parsed(kLeast, {}); }), HasSubstr("there is nothing to do"));
  translation::Options options;
  options.dataset_name = "wmt16";
  EXPECT_THAT(gannet::error_of(ErrorCode::kNotFound, [&] { translation::file_of(options, "train"); }),
              HasSubstr("nothing is downloaded"));
}

}  // namespace
