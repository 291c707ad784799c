// Runs the search of a built site as a browser does: node search_worker.js SITE, with one query per line of standard input.
// Prints a line of JSON for each query: the locations of the pages found, the best first.
"use strict";
const fs = require("fs");
const path = require("path");

const [, , site] = process.argv;
const workers = path.join(site, "assets", "javascripts", "workers");
const [worker] = fs.readdirSync(workers).filter((name) => /^search\..*\.js$/.test(name));
const index = JSON.parse(fs.readFileSync(path.join(site, "search", "search_index.json"), "utf8"));

const SETUP = 0;
const QUERY = 2;
const listeners = [];
let answered = null;
globalThis.self = globalThis;
globalThis.importScripts = () => {};
globalThis.location = { href: "http://localhost/assets/javascripts/workers/" };
globalThis.addEventListener = (type, listener) => type === "message" && listeners.push(listener);
globalThis.postMessage = (message) => answered(message);
(0, eval)(fs.readFileSync(path.join(workers, worker), "utf8"));

function ask(type, data) {
  return new Promise((resolve) => {
    answered = resolve;
    for (const listener of listeners) listener({ data: { type, data } });
  });
}

(async () => {
  await ask(SETUP, { config: index.config, docs: index.docs, options: { suggest: true } });
  for (const query of fs.readFileSync(0, "utf8").split("\n").filter(Boolean)) {
    const { data } = await ask(QUERY, query);
    console.log(JSON.stringify(data.items.map(([first]) => first.location.replace(/#.*/, ""))));
  }
})();
