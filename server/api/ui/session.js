// What the page knows of the server, and what it remembers between visits. Owns both.

import { getJson } from "./api.js";
import { defaultSettings, settingsOf } from "./settings.js";

const MEMORY = `soliton ${new URL(".", document.baseURI).pathname}`;
const EMPTY = {
  mode: "prompt", measure: "surprisal", theme: "auto", prompt: "Once upon a time", system: "",
  settings: {}, other: {}, runs: {}, turns: [],
};

export class Session extends EventTarget {
  constructor() {
    super();
    this.memory = { ...EMPTY, ...stored() };
    this.model = null;
    // What requests say of the model: nothing, unless the address of the page names one.
    const chosen = new URLSearchParams(location.search).get("model");
    this.asked = chosen ? { model: chosen } : {};
    this.defaults = defaultSettings();
    this.apply();
  }

  // Throws ApiError or TypeError.
  async load() {
    const query = "model" in this.asked ? `?${new URLSearchParams(this.asked)}` : "";
    const [props, models] = await Promise.all([getJson(`props${query}`), getJson("v1/models")]);
    const { n_params: nParams, n_vocab: nVocab } = models.data.find(({ id }) => id === props.model_alias).meta;
    this.model = {
      name: props.model_alias,
      all: [...new Set(models.data.map(({ aliases }) => aliases[0]))],
      context: props.default_generation_settings.n_ctx,
      nParams, nVocab,
      engine: props.engine,
      canChat: props.chat_template !== "",
      version: props.build_info,
    };
    this.defaults = defaultSettings(props.default_generation_settings.params);
    this.apply();
  }

  // The settings that the reader has changed, over the model's own.
  apply() {
    this.settings = settingsOf(this.memory.settings, this.defaults);
    this.other = settingsOf(this.memory.other, this.defaults);
  }

  // Remembers, and tells those who listen.
  set(name, value) {
    this.memory[name] = value;
    localStorage.setItem(MEMORY, JSON.stringify(this.memory));
    this.dispatchEvent(new CustomEvent("change", { detail: name }));
  }

  get(name) {
    return this.memory[name];
  }

  setSettings(which, settings) {
    this[which] = settings;
    const { defaults } = this;
    const changed = Object.entries(settings)
      .filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(defaults[name]));
    this.set(which, Object.fromEntries(changed));
  }
}

function stored() {
  try {
    return JSON.parse(localStorage.getItem(MEMORY)) ?? {};
  } catch {
    return {};
  }
}
