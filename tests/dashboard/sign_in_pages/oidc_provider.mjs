// A real OpenID provider for the tests: `node oidc_provider.mjs MODULE PORT REDIRECT_URI BACK`.
import { generateKeyPairSync, randomUUID } from "node:crypto";

const [module, port, redirect, back] = process.argv.slice(2);
const { default: Provider } = await import(module);
const key = generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey.export({ format: "jwk" });
const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [{
    client_id: "dlrover", client_secret: "a secret of the tests",
    redirect_uris: [redirect], post_logout_redirect_uris: [back],
  }],
  jwks: { keys: [{ ...key, kid: randomUUID(), use: "sig", alg: "RS256" }] },
  cookies: { keys: [randomUUID()] },
  scopes: ["openid", "groups"],
  claims: { openid: ["sub"], groups: ["groups"] },
  conformIdTokenClaims: false,
  findAccount: (_, id) => ({
    accountId: id, claims: async () => ({ sub: id, groups: id === "ada" ? ["ads"] : [] }),
  }),
});
provider.listen(Number(port), "127.0.0.1", () => console.log("listening"));
