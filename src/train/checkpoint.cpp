#include "train/checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "json/json.hpp"
#include "tigon/core/error.hpp"
#include "tigon/model/lora.hpp"
#include "tigon/storage/files.hpp"
#include "tigon/train/checkpoints.hpp"

namespace tigon {

namespace fs = std::filesystem;

namespace {

constexpr const char* kManifest = "checkpoint.json";
constexpr const char* kState = "state.safetensors";
// Of a whole model, or of its adapters.
constexpr const char* kFiles[] = {"model.safetensors", "config.json", kAdapterWeights,
                                  kAdapterConfig,      kState,        kRunText};
constexpr const char* kStep = "step-";
constexpr const char* kUnfinished = ".unfinished";  // being written
constexpr const char* kReplaced = ".replaced.unfinished";
constexpr const char* kRemoved = ".removed.unfinished";
constexpr const char* kSetAside = ".set-aside";
constexpr int64_t kManifestLimit = int64_t{1} << 24;

[[noreturn]] void damaged(const fs::path& folder, std::string what) {
  throw Error(ErrorCode::invalid_argument, {.where = folder.string(),
                                            .what = "the checkpoint is damaged: " + std::move(what),
                                            .fix = "Resume from another one."});
}

const Json& member(const Json& json, const char* key, const fs::path& folder) {
  const Json* value = json.find(key);
  if (value == nullptr) damaged(folder, std::string("'") + key + "' is missing in " + kManifest);
  return *value;
}

// A checkpoint replaces what stands in its place: that may be an older or damaged one, and nothing else.
void check_replaceable(const fs::path& folder) {
  if (!fs::exists(folder)) return;
  const auto ours = [](const fs::path& name) {
    return name == kManifest || std::find(std::begin(kFiles), std::end(kFiles), name) != std::end(kFiles);
  };
  bool only_ours = fs::is_directory(folder);
  if (only_ours) {
    for (const auto& entry : fs::directory_iterator(folder)) only_ours = only_ours && ours(entry.path().filename());
  }
  // A model's folder has weights and a config as well; the rest is a checkpoint's alone.
  const bool marked = fs::exists(folder / kManifest) || fs::exists(folder / kState);
  if (only_ours && (marked || fs::is_empty(folder))) return;
  throw Error(ErrorCode::invalid_argument, {.where = folder.string(),
                                            .what = "something else than a checkpoint is there, and would be lost",
                                            .expected = "a new folder, or a checkpoint to replace",
                                            .fix = "Choose another name."});
}

bool is_whole(const fs::path& folder) {
  if (!fs::exists(folder / kManifest)) return false;
  try {
    (void)read_checkpoint(folder);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Whenever a kill comes, a whole one is there: under its name, or where put_back_checkpoint finds it.
void move_into_place(const fs::path& unfinished, const fs::path& folder) {
  fs::path old = folder.string() + kReplaced;
  fs::remove_all(old);
  if (!fs::exists(folder)) {
    fs::rename(unfinished, folder);
  } else if (exchange_names(unfinished, folder)) {
    old = unfinished;
  } else {
    fs::rename(folder, old);
    fs::rename(unfinished, folder);
  }
  flush_folder(folder.parent_path());
  std::error_code none;
  fs::remove_all(old, none);  // what stays of it goes with the next one
}

void write_folder(const fs::path& folder, const std::function<CheckpointInfo(const fs::path&)>& write) {
  check_replaceable(folder);
  put_back_checkpoint(folder);
  const fs::path unfinished = folder.string() + kUnfinished;
  fs::remove_all(unfinished);
  make_folder(unfinished);
  const CheckpointInfo info = write(unfinished);

  Json files, settings{Json::Object()}, json;
  for (const auto& [name, checksum] : info.files) files.set(name, fmt::format("{:016x}", checksum));
  for (const auto& [key, value] : info.settings) settings.set(key, value);
  json.set("format", 1);
  json.set("step", info.step);
  json.set("updates", info.updates);
  json.set("loss_scale", info.loss_scale.scale);
  json.set("loss_scale_good_steps", info.loss_scale.good_steps);
  json.set("loss_scale_bad_steps", info.loss_scale.bad_steps);
  json.set("skipped", info.loss_scale.skipped);
  json.set("precision", info.precision);
  json.set("settings", settings);
  json.set("files", files);
  // The manifest's own checksum is over its text without this line.
  json.set("checksum", "");
  json.set("checksum", fmt::format("{:016x}", text_checksum(json.dump())));
  write_text_file(unfinished / kManifest, json.dump());

  move_into_place(unfinished, folder);
}

}  // namespace

void write_checkpoint(const fs::path& folder, const std::function<CheckpointInfo(const fs::path&)>& write) {
  const fs::path named = folder.has_filename() ? folder : folder.parent_path();  // "run/" is "run"
  if (named.empty())
    throw Error(ErrorCode::invalid_argument, {.where = "checkpoint", .what = "the folder has no name"});
  // What a save that failed has written takes the room that it lacked.
  const auto clean = [&] {
    std::error_code none;
    if (!is_whole(named.string() + kUnfinished)) fs::remove_all(named.string() + kUnfinished, none);
  };
  try {
    write_folder(named, write);
  } catch (const Error&) {
    clean();
    throw;
  } catch (const fs::filesystem_error& error) {
    clean();
    throw Error(ErrorCode::io, {.where = named.string(),
                                .what = "the checkpoint cannot be written: " + error.code().message(),
                                .fix = "Choose a folder that is writable and has room."});
  }
}

void put_back_checkpoint(const fs::path& folder) {
  for (const char* suffix : {kUnfinished, kReplaced}) {
    const fs::path copy = folder.string() + suffix;
    if (!is_whole(copy)) continue;
    if (is_whole(folder)) return;
    check_replaceable(folder);
    std::error_code failed;
    fs::remove_all(folder, failed);
    fs::rename(copy, folder, failed);
    if (failed) {
      throw Error(ErrorCode::io, {.where = copy.string(),
                                  .what = "this whole checkpoint cannot get its name back: " + failed.message(),
                                  .fix = "Rename it to " + folder.string() + "."});
    }
    return flush_folder(folder.parent_path());
  }
}

CheckpointInfo read_checkpoint(const fs::path& folder) {
  if (!fs::exists(folder / kManifest)) {
    throw Error(ErrorCode::io, {.where = folder.string(), .what = "this is no checkpoint", .expected = kManifest});
  }
  const std::string where = (folder / kManifest).string();
  Json json = Json::parse(read_text_file(folder / kManifest, kManifestLimit), where);
  const std::string stored = member(json, "checksum", folder).string(where);
  json.set("checksum", "");
  if (stored != fmt::format("{:016x}", text_checksum(json.dump())))
    damaged(folder, std::string(kManifest) + " was changed");
  if (member(json, "format", folder).integer(where) != 1) damaged(folder, "its format is not known");
  for (const auto& [name, value] : member(json, "files", folder).object(where)) {
    if (name.find('/') != std::string::npos || !fs::is_regular_file(folder / name))
      damaged(folder, name + " is missing");
    if (value.string(where) != fmt::format("{:016x}", file_checksum(folder / name))) {
      damaged(folder, name + " does not have its checksum");
    }
  }
  const auto listed = [&](const char* name) { return member(json, "files", folder).find(name) != nullptr; };
  const bool adapters = listed(kAdapterWeights);
  for (const char* name :
       {adapters ? kAdapterWeights : "model.safetensors", adapters ? kAdapterConfig : "config.json", kState}) {
    if (!listed(name)) damaged(folder, std::string(name) + " is not listed");
  }
  CheckpointInfo info;
  const auto integer = [&](const char* key) {
    const int64_t value = member(json, key, folder).integer(where);
    if (value < 0) damaged(folder, std::string("'") + key + "' is negative");
    return value;
  };
  info.step = integer("step");
  info.updates = integer("updates");
  info.loss_scale = {.scale = member(json, "loss_scale", folder).number(where),
                     .good_steps = integer("loss_scale_good_steps"),
                     .bad_steps = integer("loss_scale_bad_steps"),
                     .skipped = integer("skipped")};
  info.precision = member(json, "precision", folder).string(where);
  for (const auto& [key, value] : member(json, "settings", folder).object(where))
    info.settings[key] = value.string(where);
  return info;
}

namespace {

// Of two texts of many lines, the first that differs: whole models would hide what it is about.
std::pair<std::string, std::string> first_difference(const std::string& a, const std::string& b) {
  std::istringstream x(a), y(b);
  std::string one, other;
  do {
    one = other = "nothing";
    std::getline(x >> std::ws, one);
    std::getline(y >> std::ws, other);
  } while (one == other && x && y);
  for (std::string* line : {&one, &other}) {
    if (line->ends_with(',')) line->pop_back();
  }
  return {one, other};
}

}  // namespace

void check_settings(const fs::path& folder, const CheckpointInfo& info, const std::string& precision,
                    const std::map<std::string, std::string>& settings) {
  const auto refuse = [&](const std::string& what, const std::string& expected, const std::string& got) {
    throw Error(ErrorCode::invalid_argument, {.where = folder.string(),
                                              .what = "this run's " + what + " is not the checkpoint's",
                                              .expected = expected,
                                              .got = got,
                                              .fix = "Resume with the settings that the run began with."});
  };
  if (info.precision != precision) refuse("precision", info.precision, precision);
  const auto compare = [&](const std::string& key, const std::string& value) {
    const auto ours = settings.find(key);
    if (ours == settings.end()) refuse(key, value, "nothing");
    if (ours->second == value) return;
    const auto [expected, got] = first_difference(value, ours->second);
    refuse(key, expected, got);
  };
  // The data's fingerprint changes with other settings, as the length of a sequence, which would not be named then.
  const auto data = info.settings.find("data");
  for (const auto& [key, value] : info.settings) {
    if (key != "data") compare(key, value);
  }
  for (const auto& [key, value] : settings) {
    if (!info.settings.contains(key)) refuse(key, "nothing", value);
  }
  if (data != info.settings.end()) compare(data->first, data->second);
}

namespace {

// Eight digits sort as text; longer numbers are later ones.
bool earlier(const fs::path& a, const fs::path& b) {
  const std::string x = a.filename(), y = b.filename();
  return x.size() != y.size() ? x.size() < y.size() : x < y;
}

}  // namespace

fs::path checkpoint_path(const fs::path& folder, int64_t step) { return folder / fmt::format("{}{:08}", kStep, step); }

std::vector<fs::path> list_checkpoints(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(kStep) && name.size() >= 13 && name.find_first_not_of("0123456789", 5) == std::string::npos) {
      found.push_back(entry.path());
    }
  }
  std::sort(found.begin(), found.end(), earlier);
  return found;
}

fs::path newest_checkpoint(const fs::path& folder, std::vector<std::string>* damaged_ones) {
  std::vector<fs::path> all = list_checkpoints(folder);
  for (; !all.empty(); all.pop_back()) {
    try {
      (void)read_checkpoint(all.back());
      return all.back();
    } catch (const Error& error) {
      if (damaged_ones) damaged_ones->emplace_back(error.what());
    }
  }
  return {};
}

void prune_checkpoints(const fs::path& folder, int64_t keep, int64_t newest) {
  std::vector<fs::path> all = list_checkpoints(folder);
  std::erase_if(all, [&](const fs::path& path) { return earlier(checkpoint_path(folder, newest), path); });
  const int64_t surplus = static_cast<int64_t>(all.size()) - std::max<int64_t>(1, keep);
  for (int64_t i = 0; i < surplus; ++i) {
    // Renamed first: a half-removed folder must not look like a checkpoint.
    const fs::path& old = all[static_cast<size_t>(i)];
    const fs::path going = old.string() + kRemoved;
    fs::remove_all(going);
    fs::rename(old, going);
  }
  remove_unfinished(folder);
}

std::vector<fs::path> set_aside_checkpoints(const fs::path& folder, int64_t step) {
  std::vector<fs::path> renamed;
  for (const fs::path& path : list_checkpoints(folder)) {
    if (!earlier(checkpoint_path(folder, step), path)) continue;
    fs::path aside = path.string() + kSetAside;
    for (int n = 2; fs::exists(aside); ++n) aside = fmt::format("{}{}-{}", path.string(), kSetAside, n);
    fs::rename(path, aside);
    renamed.push_back(std::move(aside));
  }
  flush_folder(folder);
  return renamed;
}

void remove_unfinished(const fs::path& folder) {
  std::error_code none;
  std::vector<fs::path> left;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename();
    // A folder may hold more than checkpoints: what has another name is not ours to remove.
    if (name.starts_with(kStep) && name.ends_with(kUnfinished)) left.push_back(entry.path());
  }
  for (const fs::path& path : left) {
    const std::string name = path.filename();
    put_back_checkpoint(folder / name.substr(0, name.find('.')));
    fs::remove_all(path);
  }
}

}  // namespace tigon
